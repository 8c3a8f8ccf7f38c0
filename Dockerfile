# An image of guerdon that serves an environment: connect four, or the one that is named last.
#
#   docker build -t guerdon .
#   docker run --init -p 127.0.0.1:8000:8000 -e GUERDON_TOKEN guerdon
#   docker run --init -p 127.0.0.1:8000:8000 -e GUERDON_TOKEN \
#     -v "$PWD/my_env:/app/my_env:ro" guerdon my_env
#
# GUERDON_TOKEN is the token that clients must send; -e passes it on without showing it.
FROM python:3.12.12-slim-bookworm

COPY --from=ghcr.io/astral-sh/uv:0.13.9 /uv /usr/local/bin/uv
WORKDIR /app
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY src src
RUN uv sync --locked --no-dev --no-editable --no-cache --compile-bytecode --extra judge
COPY examples examples
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1

RUN useradd --uid 10001 --create-home guerdon
USER 10001

EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["guerdon", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["examples/connect4"]
