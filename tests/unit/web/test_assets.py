"""Scripts and styles of the dashboard: where foreign ones come from, and how browsers keep them."""

import gzip
import hashlib
import json
import re

import pytest

from app.web.assets import ROOT, assets, version

VENDOR = ROOT / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))["files"]


@pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: entry["file"])
def test_a_foreign_file_is_the_published_one_and_has_its_license(entry: dict[str, str]):
    assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    assert re.fullmatch(r"[0-9]+(\.[0-9]+)+", entry["version"])
    assert len((VENDOR / entry["license_file"]).read_text(encoding="utf-8")) > 200


def test_every_foreign_file_is_in_the_manifest():
    known = {"manifest.json", *(entry[name] for entry in MANIFEST for name in ("file", "license_file"))}

    assert {path.name for path in VENDOR.iterdir()} == known


def test_packed_files_are_the_same_files():
    packed = {name: asset for name, asset in assets().items() if asset.packed is not None}

    assert all(gzip.decompress(asset.packed or b"") == asset.content for asset in packed.values())
    assert {"app.css", "app.js", "vendor/htmx.min.js"} <= set(packed)


def test_no_page_asks_another_host_and_no_template_has_a_script_or_a_style_in_it():
    templates = list((ROOT.parent / "templates").rglob("*.html"))
    own = [path for path in ROOT.iterdir() if path.suffix in (".js", ".css")]
    wrong = []
    for path in [*templates, *own]:
        text = path.read_text(encoding="utf-8")
        if re.search(r"""(src|href|action)=["']?https?:|import .*https?:|url\(["']?https?:""", text):
            wrong.append(f"{path.name}: another host")
        if path.suffix == ".html" and re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", text):
            wrong.append(f"{path.name}: an inline script or style")
        if path.suffix == ".html" and "|safe" in text.replace(" ", ""):
            wrong.append(f"{path.name}: text that is not escaped")
        if path.suffix == ".js" and re.search(
            r"\.(inner|outer)HTML\s*=|insertAdjacentHTML|\beval\(|document\.write", text
        ):
            wrong.append(f"{path.name}: text that becomes markup")

    assert len(templates) > 5
    assert wrong == []


def test_the_version_is_of_all_files():
    assert re.fullmatch("[0-9a-f]{16}", version())
