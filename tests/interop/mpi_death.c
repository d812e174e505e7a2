// SPDX-License-Identifier: BSD-3-Clause
// Rank 2 ends in the way that the first argument names while the others wait for it.
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    int rank;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) {
        usleep(300000);
        if (!strcmp(words[1], "exit")) _exit(3);
        if (!strcmp(words[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 5);
        signal(SIGSEGV, SIG_DFL);
        raise(!strcmp(words[1], "kill") ? SIGKILL : SIGSEGV);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    sleep(30);
    return MPI_Finalize();
}
