/* Any MPI as a peer of `roundelay bench`: SOCKET */
#include "peer.h"

#include <mpi.h>

static const MPI_Comm world = MPI_COMM_WORLD;

static const char *lacks(const struct call *c) { return c->what == SENDRECV && peer.n < 2 ? "it needs two ranks" : NULL; }

static void call(const struct call *k, int root) {
  static const MPI_Datatype types[] = {MPI_FLOAT,   MPI_DOUBLE,   MPI_INT8_T,  MPI_UINT8_T,
                                       MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T};
  static const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};
  MPI_Datatype type = types[k->type];
  MPI_Op op = ops[k->op];
  int c = (int)k->count, here = peer.me == root;
  void *in = k->in, *out = k->out, *own = k->out + (long)peer.me * k->count * k->size;
  void *from = k->in_place ? MPI_IN_PLACE : in;
  switch (k->what) {
    case ALL_REDUCE: MPI_Allreduce(from, out, c, type, op, world); break;
    case ALL_GATHER: MPI_Allgather(from, c, type, out, c, type, world); break;
    case ALL_TO_ALL: MPI_Alltoall(from, c, type, out, c, type, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(from, out, c, type, op, world); break;
    case BROADCAST: /* MPI's is in place: out of place, the root copies */
      if (here && !k->in_place) memcpy(out, in, (size_t)k->count * (size_t)k->size);
      MPI_Bcast(out, c, type, root, world);
      break;
    case REDUCE: MPI_Reduce(here ? from : k->in_place ? out : in, out, c, type, op, root, world); break;
    case GATHER: MPI_Gather(here ? from : k->in_place ? own : in, c, type, out, c, type, root, world); break;
    case SCATTER:
      if (k->in_place) MPI_Scatter(out, c, type, here ? MPI_IN_PLACE : own, c, type, root, world);
      else MPI_Scatter(in, c, type, out, c, type, root, world);
      break;
    case BARRIER: MPI_Barrier(world); break;
    case SCAN: MPI_Scan(from, out, c, type, op, world); break;
    case EXSCAN: MPI_Exscan(from, out, c, type, op, world); break;
    default:
      if (peer.me == 0) MPI_Send(out, c, type, 1, 0, world);
      if (peer.me == 1) MPI_Recv(out, c, type, 0, 0, world, MPI_STATUS_IGNORE);
  }
}

static void barrier(void) { MPI_Barrier(world); }

static double max(double x) {
  double most;
  MPI_Allreduce(&x, &most, 1, MPI_DOUBLE, MPI_MAX, world);
  return most;
}

int main(int argc, char **argv) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  if (argc != 2) return 2;
  peer_join(argv[1]);
  MPI_Init(&argc, &argv);
  MPI_Comm_size(world, &peer.n);
  MPI_Comm_rank(world, &peer.me);
  MPI_Get_library_version(version, &length);
  snprintf(peer.version, sizeof peer.version, "%.199s", version);
  peer_pin(peer.me);
  peer.lacks = lacks, peer.call = call, peer.barrier = barrier, peer.max = max;
  int status = peer_serve();
  MPI_Finalize();
  return status;
}
