"""Draw the graph of a corpus job from Beam's pipeline proto: `python docs/site/beam_graph.py`.

The picture is `docs/beam-job.svg`. Steps that only jobs with a grouping have are dashed.
"""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import matplotlib.pyplot as plt
import networkx as nx

from pipelines.documents.duplicates import find_duplicates_in_bucket
from pipelines.documents.exclusions import ShardItem
from pipelines.shard_job.items import ItemProcessor
from pipelines.shard_job.job_files import JobFiles
from pipelines.shard_job.pipeline import shard_pipeline
from pipelines.shard_job.work import BucketReduce
from pipelines.vocabulary.word_counts import CountWords

PICTURE = Path(__file__).parents[1] / "beam-job.svg"


def job_graph(*, has_grouping: bool) -> nx.DiGraph:
    """Return the steps of a job, as Beam has them: edges are PCollections."""
    pipeline = beam.Pipeline("FnApiRunner")
    shard_pipeline(
        "JOB",
        ItemProcessor(CountWords(lowercase=True, output="corpus"), JobFiles("job")),
        item_type=ShardItem,
        grouping=BucketReduce(find_duplicates_in_bucket) if has_grouping else None,
    )(pipeline)
    proto = pipeline.to_runner_api()
    transforms = proto.components.transforms
    steps = [transforms[step] for step in transforms[proto.root_transform_ids[0]].subtransforms]
    producers = {output: step.unique_name for step in steps for output in step.outputs.values()}
    graph = nx.DiGraph()
    for step in steps:
        graph.add_node(step.unique_name)
        for collection in step.inputs.values():
            if collection in producers:
                graph.add_edge(producers[collection], step.unique_name)
    return graph


def draw(path: Path) -> None:
    """Draw the graph of a job with a grouping."""
    always = job_graph(has_grouping=False)
    graph = job_graph(has_grouping=True)
    positions: dict[str, tuple[int, int]] = {}
    for depth, layer in enumerate(nx.topological_generations(graph)):
        for step in layer:
            column = 0
            for before in graph.predecessors(step):
                branches = sorted(
                    graph.successors(before), key=lambda name: (name not in always, name)
                )
                column = positions[before][0] + branches.index(step)
            positions[step] = (column, -depth)
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bertloom"}
    figure, axes = plt.subplots(figsize=(7, 0.75 * (1 + depth)))
    for start, end in graph.edges:
        arrow = {"arrowstyle": "->", "color": "#777", "shrinkA": 12, "shrinkB": 12}
        axes.annotate("", positions[end], positions[start], arrowprops=arrow)
    for step, (x, y) in positions.items():
        style = "solid" if step in always else "dashed"
        box = {"boxstyle": "round", "facecolor": "#eef", "edgecolor": "#557", "linestyle": style}
        axes.text(x, y, step, ha="center", va="center", fontsize=9, bbox=box)
    axes.set(xlim=(-0.6, 1.6), ylim=(-depth - 0.5, 0.5))
    axes.axis("off")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    draw(PICTURE)
