import sys

import apache_beam as beam
import pyarrow as pa

from pipelines.transforms import ReadDocuments, SplitSentences, Tokenize
from schemas.corpus_configs import WikipediaSource

dump, vocab, output = sys.argv[1:]
schema = pa.schema({"document_id": pa.string(), "token_ids": pa.list_(pa.uint16())})
with beam.Pipeline("FnApiRunner") as pipeline:
    texts = pipeline | ReadDocuments(WikipediaSource(name="wiki", paths=(dump,)))
    tokens = texts | SplitSentences() | Tokenize(vocab)
    rows = tokens | beam.MapTuple(lambda name, row: {"document_id": name, **row._asdict()})
    _ = rows | beam.io.WriteToParquet(output, schema)
