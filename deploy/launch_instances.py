"""Program of a Dataflow flex template: raw files to instances, as one job.

A template is one graph. It needs an existing vocabulary and writes shards, not artifacts. To run
the cached jobs of a recipe, use `bertloom run --runner dataflow`. Unknown options go to Beam.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from pydantic import TypeAdapter

from pipelines.transforms import (
    DropDuplicates,
    Instance,
    PairAndMask,
    ReadDocuments,
    SplitSentences,
    Tokenize,
    WriteShards,
)
from pipelines.wordpiece.vocab_files import read_vocab
from schemas.arrow import instances_schema
from schemas.corpus_configs import AnySource, InstancesConfig, MaskingConfig


def parser() -> argparse.ArgumentParser:
    """Return the parser of the template's parameters, named like the fields of a recipe."""
    found = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    found.add_argument("--kind", default="wikipedia", help="kind of the source, as in a recipe")
    found.add_argument(
        "--name", required=True, help="name of the source; prefix of its documents' ids"
    )
    found.add_argument("--paths", required=True, help="files or patterns, separated by commas")
    found.add_argument("--language", default="en")
    found.add_argument("--vocab_file", required=True, help="URL of a vocab.txt")
    found.add_argument("--lowercase", default="true", choices=["true", "false"])
    found.add_argument("--max_seq_length", type=int, default=128)
    found.add_argument("--dupe_factor", type=int, default=1)
    found.add_argument("--max_predictions_per_seq", type=int, default=20)
    found.add_argument("--output", required=True, help="URL of the folder of the shards")
    found.add_argument(
        "--num_pools", type=int, default=0, help="pools of random next sentences; 0: by size"
    )
    found.add_argument("--shards", type=int, default=1, help="maximum number of files")
    return found


def columns(vocab_size: int) -> pa.Schema:
    """Return the columns of the stage's shards, with document ids instead of rows of artifacts.

    `part` is `training` or `held-out`.
    """
    shared = [field for field in instances_schema(vocab_size) if field.name in Instance._fields]
    names = ("document_id", "segment_b_document", "part")
    return pa.schema([*shared, *(pa.field(name, pa.string()) for name in names)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job, or stage its graph at `--template_location`."""
    given, others = parser().parse_known_args(arguments)
    source = TypeAdapter(AnySource).validate_python(
        {
            "kind": given.kind,
            "name": given.name,
            "paths": given.paths.split(","),
            "language": given.language,
        }
    )
    config = InstancesConfig(
        max_seq_length=given.max_seq_length,
        dupe_factor=given.dupe_factor,
        masking=MaskingConfig(max_predictions_per_seq=given.max_predictions_per_seq),
    )
    schema = columns(len(read_vocab(given.vocab_file)))
    pipeline = beam.Pipeline(options=PipelineOptions([*others, "--no_save_main_session"]))
    documents = pipeline | ReadDocuments(source) | SplitSentences() | DropDuplicates()
    tokens = documents | Tokenize(given.vocab_file, lowercase=given.lowercase == "true")
    instances = tokens | PairAndMask(
        config, vocab=given.vocab_file, num_pools=given.num_pools or None
    )
    _ = instances | WriteShards(given.output, schema=schema, shards=given.shards)
    # A launcher stages the graph and goes; Dataflow starts the job.
    pipeline.run()


if __name__ == "__main__":
    main()
