# The picture of README.md: where am I, does it run, build, run, submit, launch.
+ cp $DEMO/pi.def $DEMO/pi.py .
kedge
kedge explain --offline --gpu V100 --driver 580.95.05 --arch amd64 \
    nvcr.io/nvidia/pytorch:25.10-py3 | head -1
kedge build pi.sif pi.def
kedge exec pi.sif python3 --version
kedge submit --name pi --time 5m pi.sif
kedge wait pi && kedge logs pi
kedge launch --ranks --tasks 4 pi.sif sh -c 'echo rank $RANK of $WORLD_SIZE'
