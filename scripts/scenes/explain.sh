kedge explain --offline --gpu V100 --driver 580.95.05 --arch amd64 \
    nvcr.io/nvidia/pytorch:25.10-py3
