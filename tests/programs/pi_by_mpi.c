/* SPDX-License-Identifier: BSD-3-Clause
   Pi by MPI, as a beginner's program has it; the pieces are added in one order, so that all digits are the same on any
   number of ranks. */
#include <mpi.h>
#include <stdio.h>

#define PIECES 64
#define STEPS 20000

int main(int count, char **words)
{
    int rank, size;
    double mine[PIECES] = {0}, all[PIECES], sum = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int piece = rank; piece < PIECES; piece += size)
        for (int step = 0; step < STEPS; step++) {
            double x = ((double)piece * STEPS + step + 0.5) / ((double)PIECES * STEPS);
            mine[piece] += 4.0 / (1.0 + x * x);
        }
    MPI_Reduce(mine, all, PIECES, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    for (int piece = 0; rank == 0 && piece < PIECES; piece++)
        sum += all[piece];
    if (rank == 0)
        printf("%d ranks: %.15f\n", size, sum / ((double)PIECES * STEPS));
    MPI_Finalize();
    return 0;
}
