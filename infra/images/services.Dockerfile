# Every service of a cell; which one runs is the command.
FROM python:3.11-slim
WORKDIR /opt/sanjaya
COPY requirements.lock pyproject.toml README.md ./
RUN pip install --no-cache-dir --requirement requirements.lock
COPY libs libs
COPY services services
COPY schemas schemas
RUN pip install --no-cache-dir --no-deps --editable .
RUN useradd --create-home sanjaya && mkdir -p /var/lib/sanjaya && chown sanjaya /var/lib/sanjaya
USER sanjaya
CMD ["sanjaya", "--help"]
