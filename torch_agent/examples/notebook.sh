#!/bin/sh
#SANJAYA --name=notebook --gpus=1
#
# A Jupyter server as a job, in the directory where it is submitted:
#
#     sanjaya submit torch_agent/examples/notebook.sh
#     sanjaya logs notebook                # the URL, with its token
#     sanjaya forward notebook 8888        # until Ctrl-C
#
# It needs JupyterLab in the job's environment. `submit --env PORT=8889` takes another port, where one runs on the node.
exec jupyter lab --no-browser --ip=127.0.0.1 --port="${PORT:-8888}" --ServerApp.port_retries=0
