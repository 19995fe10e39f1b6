/* One collective of an MPI, checked and timed the way `roundelay bench` does its own: batches of calls,
 * each after a barrier; a batch takes as long as its slowest rank; the median of the batches counts.
 *
 * Arguments: collective dtype op count root in_place(0|1) pin(0|1) warmup iters(0: by time) seconds
 * Rank 0 prints one line: microseconds a call, and wrong elements on all ranks. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 11, MOST = 20000 };

static int n, me, root, in_place;
static long count;
static const char *collective, *op_name;
static MPI_Datatype type;
static MPI_Op op;
static int size;
static char kind; /* f(loat), i(nteger), u(nsigned) */
static unsigned char *in, *out;

static int is(const char *name) { return !strcmp(collective, name); }
static int blocked(void) {
  return is("all_gather") || is("reduce_scatter") || is("all_to_all") || is("gather") || is("scatter");
}

static int choose_type(const char *name) {
  static const struct { const char *name; char kind; int size; } types[] = {
      {"f32", 'f', 4}, {"f64", 'f', 8}, {"i8", 'i', 1}, {"u8", 'u', 1},
      {"i32", 'i', 4}, {"u32", 'u', 4}, {"i64", 'i', 8}, {"u64", 'u', 8}};
  const MPI_Datatype mpi[] = {MPI_FLOAT, MPI_DOUBLE, MPI_INT8_T, MPI_UINT8_T,
                              MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T};
  for (int i = 0; i < 8; i++)
    if (!strcmp(types[i].name, name)) {
      kind = types[i].kind, size = types[i].size, type = mpi[i];
      return 1;
    }
  return 0;
}

static int choose_op(const char *name) {
  op_name = name;
  if (!strcmp(name, "sum")) op = MPI_SUM;
  else if (!strcmp(name, "prod")) op = MPI_PROD;
  else if (!strcmp(name, "min")) op = MPI_MIN;
  else if (!strcmp(name, "max")) op = MPI_MAX;
  else return 0;
  return 1;
}

/* Small whole numbers: every result is exact in every type (and wraps the same in 8 bits). */
static long value(int rank, long i) {
  long x = (i * 7 + rank * 13) % 16;
  return op == MPI_PROD ? 1 + x % 2 : x;
}

static void put(unsigned char *at, long i, long x) {
  at += i * size;
  if (kind == 'f' && size == 4) { float f = (float)x; memcpy(at, &f, 4); }
  else if (kind == 'f') { double f = (double)x; memcpy(at, &f, 8); }
  else { int64_t v = x; memcpy(at, &v, size); } /* little-endian: the low bytes */
}

static int holds(const unsigned char *at, long i, long x) {
  unsigned char want[8];
  put(want, 0, x);
  return !memcmp(at + i * size, want, size);
}

static long reduced(long i) {
  uint64_t all = (uint64_t)value(0, i);
  for (int r = 1; r < n; r++) {
    uint64_t x = (uint64_t)value(r, i);
    if (op == MPI_SUM) all += x;
    else if (op == MPI_PROD) all *= x;
    else if (op == MPI_MIN ? x < all : x > all) all = x;
  }
  return (long)all;
}

static void call(void) {
  int c = (int)count;
  unsigned char *own = out + (long)me * count * size;
  void *from = in_place ? MPI_IN_PLACE : (void *)in;
  if (is("all_reduce")) MPI_Allreduce(from, out, c, type, op, MPI_COMM_WORLD);
  else if (is("all_gather")) MPI_Allgather(from, c, type, out, c, type, MPI_COMM_WORLD);
  else if (is("all_to_all")) MPI_Alltoall(from, c, type, out, c, type, MPI_COMM_WORLD);
  else if (is("reduce_scatter")) MPI_Reduce_scatter_block(from, out, c, type, op, MPI_COMM_WORLD);
  else if (is("broadcast")) MPI_Bcast(out, c, type, root, MPI_COMM_WORLD);
  else if (is("reduce")) MPI_Reduce(me == root ? from : in_place ? out : in, out, c, type, op, root, MPI_COMM_WORLD);
  else if (is("gather")) MPI_Gather(me == root ? from : in_place ? own : in, c, type, out, c, type, root, MPI_COMM_WORLD);
  else if (is("scatter"))
    MPI_Scatter(in_place ? out : in, c, type, in_place ? (me == root ? MPI_IN_PLACE : own) : out, c, type, root, MPI_COMM_WORLD);
  else if (is("barrier")) MPI_Barrier(MPI_COMM_WORLD);
  else if (is("sendrecv") && me == 0) MPI_Send(out, c, type, 1, 0, MPI_COMM_WORLD);
  else if (is("sendrecv") && me == 1) MPI_Recv(out, c, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Wrong elements here after one call. */
static long checked(void) {
  long all = count * (blocked() ? n : 1), wrong = 0;
  unsigned char *from = in_place || is("broadcast") || is("sendrecv") ? out : in;
  long shift = in_place && (is("all_gather") || is("gather")) ? me * count : 0;
  memset(in, 0xff, (size_t)(all + 1) * size), memset(out, 0xff, (size_t)(all + 1) * size);
  int source = is("broadcast") || is("scatter") ? me == root : is("sendrecv") ? me == 0 : !is("barrier");
  long own = is("all_gather") || is("gather") ? count : all;
  if (source)
    for (long i = 0; i < own; i++) put(from, shift + i, value(me, i));
  call();
  if (is("all_reduce") || (is("reduce") && me == root))
    for (long i = 0; i < count; i++) wrong += !holds(out, i, reduced(i));
  else if (is("reduce_scatter")) /* in place too, MPI leaves the block at the front */
    for (long i = 0; i < count; i++) wrong += !holds(out, i, reduced(me * count + i));
  else if (is("all_gather") || (is("gather") && me == root))
    for (long i = 0; i < all; i++) wrong += !holds(out, i, value((int)(i / count), i % count));
  else if (is("all_to_all"))
    for (long i = 0; i < all; i++) wrong += !holds(out, i, value((int)(i / count), me * count + i % count));
  else if (is("broadcast"))
    for (long i = 0; i < count; i++) wrong += !holds(out, i, value(root, i));
  else if (is("scatter")) {
    long at = in_place ? me * count : 0;
    for (long i = 0; i < count; i++) wrong += !holds(out, at + i, value(root, me * count + i));
  } else if (is("sendrecv") && me == 1)
    for (long i = 0; i < count; i++) wrong += !holds(out, i, value(0, i));
  return wrong;
}

static double batch(long calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  double t = MPI_Wtime(), most;
  for (long i = 0; i < calls; i++) call();
  t = (MPI_Wtime() - t) / (double)calls;
  MPI_Allreduce(&t, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double measure(long warmup, long iters, double seconds) {
  for (long i = 0; i < warmup; i++) call();
  long batches = BATCHES, calls = 1;
  if (iters > 0) {
    batches = iters < BATCHES ? iters : BATCHES;
    calls = iters / batches;
  } else {
    double each;
    for (long tries = 1;; tries *= 4) {
      each = batch(tries);
      if (each < 1e-9) each = 1e-9;
      if (each * (double)tries > seconds / 16 || tries >= MOST) break;
    }
    calls = (long)(seconds / BATCHES / each);
    if (calls < 1) batches = 3, calls = 1;
    if (calls > MOST) calls = MOST;
  }
  double times[BATCHES];
  for (long b = 0; b < batches; b++) times[b] = batch(calls);
  qsort(times, (size_t)batches, sizeof *times, ascending);
  return times[batches / 2];
}

static void pin(void) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all)) return;
  for (int core = 0, seen = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &all) && seen++ == me) {
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  if (argc != 11 || !choose_type(argv[2]) || !choose_op(argv[3])) {
    if (!me) fprintf(stderr, "unsupported type or operator\n");
    MPI_Finalize();
    return 2;
  }
  collective = argv[1], count = atol(argv[4]), root = atoi(argv[5]), in_place = atoi(argv[6]);
  if (atoi(argv[7])) pin();
  size_t bytes = ((size_t)count * (blocked() ? (size_t)n : 1) + 1) * (size_t)size;
  bytes = (bytes + 4095) / 4096 * 4096;
  in = aligned_alloc(4096, bytes), out = aligned_alloc(4096, bytes);
  if (!in || !out) MPI_Abort(MPI_COMM_WORLD, 3);
  long wrong = checked(), all_wrong = 0;
  memset(in, 0, bytes), memset(out, 0, bytes);
  double t = measure(atol(argv[8]), atol(argv[9]), atof(argv[10]));
  wrong += checked();
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (!me) printf("%.4f %ld\n", t * 1e6, all_wrong);
  MPI_Finalize();
  return 0;
}
