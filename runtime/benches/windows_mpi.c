// What windows.rs measures, by MPI: puts and gets of rank 0 in a window, under a lock of all, while rank 1 waits in a
// barrier. Usage: windows_mpi LABEL. MPI allocates the window, but where the label ends in tcp: Open MPI would share it.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int SIZES[] = {8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20};
enum { N = sizeof SIZES / sizeof *SIZES, MOST = 64 << 20, ROOM = 1 << 20 };
static const double TIME = 0.2;

static MPI_Win window;
static char *data;
static double times[ROOM];

static void call(int get, int bytes) {
    if (get) MPI_Get(data, bytes, MPI_CHAR, 1, 0, bytes, MPI_CHAR, window);
    else MPI_Put(data, bytes, MPI_CHAR, 1, 0, bytes, MPI_CHAR, window);
    MPI_Win_flush(1, window);
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(int get, int bytes) {
    double began = MPI_Wtime();
    for (int i = 0; i < 3; i++) call(get, bytes);
    double blocks = TIME / 20 / ((MPI_Wtime() - began) / 3);
    long block = blocks < 1 ? 1 : (long)blocks;
    int n = 0;
    double until = MPI_Wtime() + TIME;
    while (n < ROOM && (n < 5 || MPI_Wtime() < until)) {
        began = MPI_Wtime();
        for (long i = 0; i < block; i++) call(get, bytes);
        times[n++] = (MPI_Wtime() - began) * 1e6 / block;
    }
    qsort(times, n, sizeof *times, order);
    return times[n / 2];
}

int main(int argc, char **argv) {
    int rank;
    char *mine;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strstr(argv[1], "tcp")) {
        mine = malloc(MOST);
        MPI_Win_create(mine, MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    } else {
        MPI_Win_allocate(MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
    }
    data = malloc(MOST);
    memset(data, 1, MOST), memset(mine, 2, MOST);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    if (rank == 0)
        for (int i = 0; i < N; i++)
            for (int get = 0; get < 2; get++) {
                printf("%s %s %d %.3f\n", argv[1], get ? "get" : "put", SIZES[i], median(get, SIZES[i]));
                fflush(stdout);
            }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
