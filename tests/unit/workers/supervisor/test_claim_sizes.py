"""Which claims and empty directories of an attempt have a limit of what they hold."""

from pathlib import Path

from app.domain.spec.model import Mount
from workers.sandbox.spec import FilesystemView, PlacedPath
from workers.supervisor.recording.claim_sizes import limits_of_claims, limits_of_empty

SCRATCH, SHARED = Path("/claims/red/scratch"), Path("/claims/red/shared")


def limits(*mounts: tuple[str, Path, bool, int], most_mb: int = 0) -> dict[Path, int]:
    """Of mounts: path, source, whether it is written to, and size_mb."""
    view = FilesystemView(
        run_dir=Path("/run/job"),
        data_dir=Path("/data"),
        claims=(SCRATCH, SHARED),
        placements=(
            *(PlacedPath(target=Path(at), source=source, writable=writable) for at, source, writable, _ in mounts),
            PlacedPath(target=Path("/out"), source=Path("/run/job/output"), writable=True),
        ),
    )
    asked = [Mount().changed(path=at, type="claim", claim="c", size_mb=size) for at, _, _, size in mounts]
    return limits_of_claims(view, [*asked, Mount().changed(path="/out", type="output")], most_mb)


def test_claims_that_are_written_to_have_the_smallest_limit() -> None:
    assert limits(("/a", SCRATCH, True, 0)) == {}
    assert limits(("/a", SCRATCH, True, 5), ("/b", SHARED, False, 0), most_mb=9) == {SCRATCH: 5}
    assert limits(("/a", SCRATCH, True, 0), ("/b", SHARED, True, 20), most_mb=9) == {SCRATCH: 9, SHARED: 9}
    assert limits(("/a", SCRATCH, True, 7), ("/b", SCRATCH, True, 4)) == {SCRATCH: 4}


def test_part_of_a_claim_has_the_limit_of_the_whole() -> None:
    assert limits(("/a", SCRATCH / "part", True, 5)) == {SCRATCH: 5}


def test_empty_directory_has_the_limit_of_its_mount() -> None:
    places = {"/a": Path("/run/job/empty/0"), "/b": Path("/run/job/empty/1")}
    placed = tuple(PlacedPath(target=Path(at), source=source, writable=True) for at, source in places.items())
    view = FilesystemView(run_dir=Path("/run/job"), data_dir=Path("/data"), placements=placed)
    mounts = [Mount().changed(path=at, type="empty", size_mb=size) for at, size in (("/a", 5), ("/b", 0))]

    assert limits_of_empty(view, mounts) == {Path("/a"): (places["/a"], 5)}
