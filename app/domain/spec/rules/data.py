"""Rules of ``data_config``: sources, selection, streaming and preprocessing.

For a custom script only locations and kinds are checked; the script interprets the rest.
"""

from collections.abc import Iterator, Mapping

from app.domain.errors import BadSpec
from app.domain.spec.data.filters import BadFilter, check_filter
from app.domain.spec.data.preprocessing import (
    TEXTS,
    BadPreprocessing,
    check_field_mapping,
    check_tokenizer_config,
    mapped_columns,
    records_of,
)
from app.domain.spec.data.splits import VALIDATION, BadSplit, parse_split
from app.domain.spec.document import is_custom, is_trained_on, method, sources
from app.domain.spec.locations.paths import kind_of
from app.domain.spec.model import JobDocument, Sampling, Source

_SOURCES = "data_config.sources"
_STREAMED = "can't be streamed: how many records there are is known only at the end"


def data_is_named(document: JobDocument) -> None:
    if not document.data_config.sources and not is_custom(document):
        raise BadSpec("sources must name at least one data source", field=_SOURCES)
    for i, source in enumerate(document.data_config.sources):
        field = f"{_SOURCES}.{i}"
        if not source.path.strip():
            raise BadSpec("path must not be empty", field=f"{field}.path")
        kind = kind_of(source.path, field=f"{field}.path")
        if source.type and source.type != kind:
            raise BadSpec(
                f"type is {source.type!r}, but the path is one of type {kind!r}; leave type out or say {kind}",
                field=f"{field}.type",
            )


def splits_have_a_meaning(document: JobDocument) -> None:
    """Splits are checked for custom scripts, too: hub files are selected by them."""
    data, names = document.data_config, set()
    for i, source in enumerate(data.sources):
        try:
            split = parse_split(source.split)
        except BadSplit as error:
            raise BadSpec(str(error), field=f"{_SOURCES}.{i}.split") from error
        names.add(split.name)
    if is_custom(document):
        return
    if all(not is_trained_on(split) for _, _, split in sources(document)):
        raise BadSpec(
            "every source is for validation or test; give at least one with split train, or without a split",
            field=_SOURCES,
        )
    if VALIDATION in names and data.validation_split > 0:
        raise BadSpec(
            "validation_split has no effect beside sources with split validation, which are the validation data; "
            "leave one of them out",
            field="data_config.validation_split",
        )


def validation_split_leaves_something(document: JobDocument) -> None:
    if document.data_config.validation_split >= 1.0:
        raise BadSpec(
            "a validation_split of 1.0 leaves nothing to train on; use a smaller share",
            field="data_config.validation_split",
        )


def selection_has_a_meaning(document: JobDocument) -> None:
    """Check columns, filters and sampling of each source."""
    if is_custom(document):
        return
    for i, source, _ in sources(document):
        field = f"{_SOURCES}.{i}"
        columns = source.columns
        if len(set(columns)) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise BadSpec(f"the column {twice!r} is named twice; name it once", field=f"{field}.columns")
        _check_filters(source, field)
        if source.sampling is not None:
            _check_sampling(source.sampling, f"{field}.sampling")


def _check_filters(source: Source, field: str) -> None:
    for n, condition in enumerate(source.filters):
        try:
            check_filter(condition)
        except BadFilter as error:
            raise BadSpec(str(error), field=f"{field}.filters.{n}.{error.part}") from error


def _check_sampling(sampling: Sampling, field: str) -> None:
    given = [name for name in ("fraction", "count") if getattr(sampling, name) is not None]
    if len(given) != 1:
        raise BadSpec(
            f"sampling needs either fraction or count, not {'both' if given else 'neither'}; leave sampling out to "
            "take all records",
            field=field,
        )
    if sampling.fraction == 0.0:
        raise BadSpec("a fraction of 0 leaves no records; use a share above 0", field=f"{field}.fraction")


def weights_are_complete(document: JobDocument) -> None:
    """Weights are relative, so either all training sources have one or none has."""
    if is_custom(document):
        return
    without, weighted = [], []
    for i, source, split in sources(document):
        field, weight = f"{_SOURCES}.{i}.weight", source.weight
        if weight is None:
            without += [i] if is_trained_on(split) else []
        elif not is_trained_on(split):
            raise BadSpec(f"a source with split {split.name} is taken as it is; leave weight out", field=field)
        elif weight <= 0:
            raise BadSpec("a weight is above 0; leave a source out that shall not be trained on", field=field)
        else:
            weighted.append(i)
    if weighted and without:
        raise BadSpec(
            f"source {weighted[0]} has a weight but source {without[0]} has none; give one to every source that is "
            "trained on, or to none",
            field=f"{_SOURCES}.{without[0]}.weight",
        )


def streaming_is_possible(document: JobDocument) -> None:
    """Options that need all records first can't be streamed; hyperparameters have their own rule."""
    data = document.data_config
    if is_custom(document):
        return
    if not data.streaming:
        if "shuffle_buffer" in data.given:
            raise BadSpec(
                "shuffle_buffer has no effect without streaming, which shuffles all records; leave it out",
                field="data_config.shuffle_buffer",
            )
        return
    for field, what, way_out in _unstreamable(document):
        raise BadSpec(f"{what} {_STREAMED}; {way_out}, or set data_config.streaming to false", field=field)


def _unstreamable(document: JobDocument) -> Iterator[tuple[str, str, str]]:
    """(field, what, way out)."""
    if document.data_config.validation_split > 0:
        yield "data_config.validation_split", "a validation_split", "give a source with split validation"
    for i, source, split in sources(document):
        field = f"{_SOURCES}.{i}"
        if source.weight is not None:
            yield f"{field}.weight", "a weight", "leave it out"
        if source.sampling is not None and source.sampling.count is not None:
            yield f"{field}.sampling.count", "a count of records", "sample by fraction"
        if split.is_sliced:
            yield f"{field}.split", "a slice of a split", f"say {split.name} alone"


def preprocessing_has_a_meaning(document: JobDocument) -> None:
    preprocess = document.data_config.preprocess
    if is_custom(document):
        return
    records = records_of(method(document))
    try:
        check_tokenizer_config(preprocess.tokenizer_config)
        check_field_mapping(preprocess.field_mapping, records=records)
    except BadPreprocessing as error:
        raise BadSpec(str(error), field=f"data_config.preprocess.{error.part}") from error
    if records == TEXTS and preprocess.chat_template:
        raise BadSpec(
            "CONTINUED_PRETRAIN trains on text, which has no chat; leave chat_template out, or use SFT",
            field="data_config.preprocess.chat_template",
        )
    check_mapped_columns_are_kept(document, preprocess.field_mapping)


def check_mapped_columns_are_kept(document: JobDocument, mapping: Mapping[str, str]) -> None:
    """Raise BadSpec for a mapped column that is not selected: fields are mapped after column selection."""
    selected = [set(source.columns) for _, source, _ in sources(document) if source.columns]
    if len(selected) < len(document.data_config.sources):
        return  # a source with all its columns may have it
    for target, column in mapped_columns(mapping).items():
        if not any(column in columns for columns in selected):
            raise BadSpec(
                f"the column {column!r} is in no source's columns; add it there, or map another",
                field=f"data_config.preprocess.field_mapping.{target}",
            )


RULES = (
    data_is_named,
    validation_split_leaves_something,
    splits_have_a_meaning,
    selection_has_a_meaning,
    weights_are_complete,
    streaming_is_possible,
    preprocessing_has_a_meaning,
)
