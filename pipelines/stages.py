"""Stages of the corpus. The module of a stage, which loads Beam, is imported when it runs."""

from __future__ import annotations

from pipelines.io.stage_inputs import CONTAMINATION, EXCLUSION_INPUTS
from schemas.corpus_configs import (
    ContaminationConfig,
    DocumentsConfig,
    InstancesConfig,
    NearDuplicatesConfig,
    TokensConfig,
    VocabularyConfig,
)
from schemas.manifest import Manifest
from schemas.stage import VARIADIC, Stage


def summarize_contamination(manifest: Manifest) -> str:
    """Return the number of evaluation texts that are in the corpus."""
    contaminated, texts = (manifest.counters[f"texts-{kind}"] for kind in ("contaminated", "in"))
    return f"{contaminated:,} of {texts:,} texts found"


def summarize_near_duplicates(manifest: Manifest) -> str:
    """Return the number of excluded documents."""
    return f"{manifest.counters.get('documents-dropped-near-duplicate', 0):,} near-duplicates"


def summarize_vocabulary(manifest: Manifest) -> str:
    """Return the size of the vocabulary."""
    return f"{manifest.statistics['vocab_size']:,} word pieces"


STAGES = (
    Stage(
        name="build-documents",
        version=10,
        run="pipelines.documents.job:build_documents",
        config=DocumentsConfig,
        output_type="documents",
        libraries=("pyarrow", "sentencex", "chardet", "lxml"),
        raw_inputs="pipelines.documents.plan:raw_inputs",
        supports_reuse=True,
    ),
    Stage(
        name="find-contamination",
        version=3,
        run="pipelines.contamination.job:find_contamination",
        config=ContaminationConfig,
        output_type="contamination",
        libraries=("pyarrow", "numpy"),
        inputs=("documents", VARIADIC),
        supports_reuse=True,
        summarize="pipelines.stages:summarize_contamination",
    ),
    Stage(
        name="find-near-duplicates",
        version=4,
        run="pipelines.near_duplicates.job:find_near_duplicates",
        config=NearDuplicatesConfig,
        output_type="near_duplicates",
        libraries=("pyarrow", "numpy", "tokenizers", "rensa"),
        inputs=("documents",),
        optional_inputs=(CONTAMINATION,),
        supports_reuse=True,
        summarize="pipelines.stages:summarize_near_duplicates",
    ),
    Stage(
        name="build-vocabulary",
        version=4,
        run="pipelines.vocabulary.job:build_vocabulary",
        config=VocabularyConfig,
        output_type="vocabulary",
        libraries=("pyarrow", "tokenizers"),
        python_independent=True,
        inputs=("documents",),
        optional_inputs=EXCLUSION_INPUTS,
        raw_inputs="pipelines.vocabulary.raw_inputs:raw_inputs",
        supports_reuse=True,
        summarize="pipelines.stages:summarize_vocabulary",
    ),
    Stage(
        name="build-tokens",
        version=4,
        run="pipelines.tokens.job:build_tokens",
        config=TokensConfig,
        output_type="tokens",
        libraries=("pyarrow", "tokenizers", "numpy"),
        python_independent=True,
        inputs=("documents", "vocabulary"),
        optional_inputs=EXCLUSION_INPUTS,
        supports_reuse=True,
    ),
    Stage(
        name="build-instances",
        version=9,
        run="pipelines.instances.job:build_instances",
        config=InstancesConfig,
        output_type="instances",
        libraries=("pyarrow", "numpy"),
        python_independent=True,
        inputs=("tokens", "vocabulary"),
        supports_reuse=True,
    ),
)
"""Stages, each after those that it reads."""
