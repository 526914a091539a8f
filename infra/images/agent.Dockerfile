# A node's agent with torch. For real GPUs base it on your CUDA training image instead: torch is not pinned.
FROM sanjaya/services
USER root
COPY torch_agent torch_agent
RUN pip install --no-cache-dir torch && pip install --no-cache-dir --no-deps --editable torch_agent
USER sanjaya
CMD ["python", "-m", "torch_agent.service"]
