# The server: a SuperLink with flower_pca from its wheel, and the app, to start runs of.
#   docker build --file docker/server.Dockerfile --tag flower-pca-server .
# For 64-bit ARM and x86: everything comes as wheels for both, and nothing is compiled.
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml PACKAGE.md LICENSE ./
COPY flower_pca flower_pca
RUN python -m venv --without-pip /opt/pca \
    && pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && pip --python /opt/pca/bin/python install --no-cache-dir --only-binary :all: /wheels/*.whl

FROM ${BASE}
COPY --from=build /opt/pca /opt/pca
# The app of a run: its settings, and two modules that name what is in the wheel.
COPY hub /opt/app
COPY docker/run.sh /opt/app/run.sh
ENV PATH=/opt/pca/bin:$PATH \
    HOME=/var/lib/pca \
    FLWR_HOME=/var/lib/pca/flwr \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \
    OMP_NUM_THREADS=1
# Whatever user it is run as has to write there; only what belongs to that user can be changed.
RUN useradd --uid 1000 --user-group --no-create-home pca && install --directory --mode 1777 /var/lib/pca
USER 1000:1000
WORKDIR /var/lib/pca
EXPOSE 8000
ENTRYPOINT ["flower-superlink"]
