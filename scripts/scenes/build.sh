+ cp $DEMO/pi.def $DEMO/pi.py .
cat pi.def
kedge build pi.sif pi.def
kedge build --force pi.sif pi.def      # unchanged steps cost nothing
kedge run pi.sif
