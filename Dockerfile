# The shell as an image; see docs/install.md.
#
#   docker build -t considerate .
#   docker run --rm -v "$PWD:/data" considerate fit ratings.parquet --where "rating >= 4" -o model.safetensors
#
# Extras such as study or ray: docker build --build-arg EXTRAS=study,pandas -t considerate .
FROM python:3.12-slim AS build
# The compiler stays in this stage, so its version need not be pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ARG EXTRAS=""
COPY --from=build /wheels /wheels
RUN wheel="$(ls /wheels/considerate-*.whl)" \
    && pip install --no-cache-dir "considerate[${EXTRAS}] @ file://${wheel}" \
    && useradd --uid 1000 --create-home considerate \
    && install -d -o considerate /data
USER 1000
WORKDIR /data
ENTRYPOINT ["considerate"]
CMD ["--help"]
