# refused: tacc-frontera does not accept job arrays
# try: --queue rtx, without --array
