# refused: tacc-frontera takes no arrays of jobs
# this would do: --queue rtx, without --array
