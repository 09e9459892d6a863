# Images for workers, and for the launcher of a Dataflow flex template. Not built here: there is no
# container engine on the machine that this was written on. The worker's steps were carried out in a
# bare Debian 13, whose worker took part in a job of Flink; the launcher's were not. tests/project/test_deploy.py
# holds the pins, names and parameters to the code.
#
#   bertloom worker-package deploy/build --with gcs
#   cp deploy/launch_instances.py deploy/build/
#   docker build -f deploy/worker.Dockerfile --target worker -t REGISTRY/bertloom-worker deploy/build
#   docker build -f deploy/worker.Dockerfile --target launcher -t REGISTRY/bertloom-launcher deploy/build
#
# The worker's is for execution.dataflow.image, and for environment: docker of Flink and Spark.

# The tag is the version of Beam that is pinned in pyproject.toml, and its Python the submitter's:
# --build-arg PYTHON=3.12 (and for a launcher LAUNCHER=312); 3.13 where flow.Dockerfile's image submits.
ARG PYTHON=3.11
ARG LAUNCHER=311
# hadolint ignore=DL3007
FROM gcr.io/dataflow-templates-base/python${LAUNCHER}-template-launcher-base:latest AS template

FROM apache/beam_python${PYTHON}_sdk:2.77.0 AS worker
COPY bertloom-*.whl /opt/bertloom/
# The wheel asks for exactly the versions that were there when it was made.
RUN pip install --no-cache-dir /opt/bertloom/bertloom-*.whl \
    && python -c "import pipelines.beam.pipeline, pipelines.transforms"
# The base image's entry point, /opt/apache/beam/boot, is an engine's way in: leave it.

FROM worker AS launcher
COPY --from=template \
    /opt/google/dataflow/python_template_launcher /opt/google/dataflow/python_template_launcher
COPY launch_instances.py /template/launch_instances.py
ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/launch_instances.py
ENTRYPOINT ["/opt/google/dataflow/python_template_launcher"]
