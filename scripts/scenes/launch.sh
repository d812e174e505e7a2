# A rank that fails ends the others; kedge says why, of a job afterwards too.
+ cp $DEMO/pi.def $DEMO/pi.py . && kedge build pi.sif pi.def 2>/dev/null
kedge launch --ranks --tasks 2 pi.sif python3 /opt/pi.py --fail
kedge submit --time 5m --ranks --tasks 2 pi.sif python3 /opt/pi.py --fail
+ kedge wait 1 2>/dev/null || true
kedge diagnose
