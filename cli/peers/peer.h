/* What the programs of all peers share: the conversation with `roundelay bench`, elements and their check, and
 * time, taken the way `roundelay bench` takes its own: batches of calls, each after a barrier; a batch takes as
 * long as its slowest rank; the median of the batches counts.
 *
 * A program is started as SOCKET with arguments of its own after it. Every rank connects to the socket first of all,
 * and when its library is ready says «RANK SIZE PID VERSION». Then every rank is sent the same lines,
 * and sleeps until the next one comes:
 *
 *   run COLLECTIVE DTYPE OP COUNT ROOT(-1: turns) IN_PLACE WARMUP ITERS(0: by time) SECONDS CHECKS
 *   end
 *
 * Rank 0 answers «ok MICROSECONDS WRONG», WRONG elements being those of all ranks, or «no WHY».
 * When the other end of the socket is gone, so is the rank, whatever it is doing.
 */
#ifndef ROUNDELAY_PEER_H
#define ROUNDELAY_PEER_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 11
#define MOST 20000

enum collective { ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, BROADCAST, REDUCE, GATHER, SCATTER, BARRIER, SENDRECV, SCAN, EXSCAN, COLLECTIVES };
enum type { F32, F64, I8, U8, I32, U32, I64, U64, TYPES };
enum op { SUM, PROD, MIN, MAX, OPS };

static const char *const collective_names[] = {"all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast",
                                               "reduce", "gather", "scatter", "barrier", "sendrecv", "scan", "exscan"};
static const char *const type_names[] = {"f32", "f64", "i8", "u8", "i32", "u32", "i64", "u64"};
static const int type_sizes[] = {4, 8, 1, 1, 4, 4, 8, 8};
static const char *const op_names[] = {"sum", "prod", "min", "max"};

/* What is called. In place, the data lies in `out`, and nothing may be read from `in`. */
struct call {
  int what, type, op, in_place;
  long count; /* elements, in the unit of the collective: of a block, where there are blocks */
  int size;   /* bytes of an element */
  unsigned char *in, *out;
};

/* What a library provides. */
struct peer {
  int me, n;
  char version[200];
  /* Why it has no such call; NULL if it has. Asked once before the calls of a size. */
  const char *(*lacks)(const struct call *);
  void (*call)(const struct call *, int root);
  void (*barrier)(void);
  double (*max)(double);
  /* The calls of a size are over; may be NULL. */
  void (*done)(void);
};

static struct peer peer;

/* --- elements: small whole numbers, exact in every type (and wrapping alike in 8 bits) --- */

static long peer_value(const struct call *c, int rank, long i) {
  long x = (i * 7 + rank * 13) % 16;
  return c->op == PROD ? 1 + x % 2 : x;
}

static void peer_put(const struct call *c, unsigned char *at, long i, long x) {
  at += i * c->size;
  if (c->type == F32) { float f = (float)x; memcpy(at, &f, 4); }
  else if (c->type == F64) { double f = (double)x; memcpy(at, &f, 8); }
  else { int64_t v = x; memcpy(at, &v, (size_t)c->size); } /* little-endian: the low bytes */
}

static int peer_holds(const struct call *c, const unsigned char *at, long i, long x) {
  unsigned char want[8];
  peer_put(c, want, 0, x);
  return !memcmp(at + i * c->size, want, (size_t)c->size);
}

/* The reduction of the ranks before `end`. */
static long peer_prefix(const struct call *c, int end, long i) {
  uint64_t all = (uint64_t)peer_value(c, 0, i);
  for (int r = 1; r < end; r++) {
    uint64_t x = (uint64_t)peer_value(c, r, i);
    if (c->op == SUM) all += x;
    else if (c->op == PROD) all *= x;
    else if (c->op == MIN ? x < all : x > all) all = x;
  }
  return (long)all;
}

static long peer_reduced(const struct call *c, long i) { return peer_prefix(c, peer.n, i); }

static int peer_blocked(int what) {
  return what == ALL_GATHER || what == REDUCE_SCATTER || what == ALL_TO_ALL || what == GATHER || what == SCATTER;
}

/* Wrong elements here after one call. */
static long peer_checked(const struct call *c, int root) {
  long count = c->count, all = count * (peer_blocked(c->what) ? peer.n : 1), wrong = 0;
  int w = c->what, me = peer.me;
  memset(c->in, 0xff, (size_t)(all + 1) * (size_t)c->size), memset(c->out, 0xff, (size_t)(all + 1) * (size_t)c->size);
  unsigned char *from = c->in_place || w == SENDRECV ? c->out : c->in;
  long shift = c->in_place && (w == ALL_GATHER || w == GATHER) ? me * count : 0;
  int source = w == BROADCAST || w == SCATTER ? me == root : w == SENDRECV ? me == 0 : w != BARRIER;
  long own = w == ALL_GATHER || w == GATHER ? count : all;
  if (source)
    for (long i = 0; i < own; i++) peer_put(c, from, shift + i, peer_value(c, me, i));
  peer.call(c, root);
  if (w == ALL_REDUCE || (w == REDUCE && me == root))
    for (long i = 0; i < count; i++) wrong += !peer_holds(c, c->out, i, peer_reduced(c, i));
  else if (w == REDUCE_SCATTER) /* in place too, libraries leave the block at the front */
    for (long i = 0; i < count; i++) wrong += !peer_holds(c, c->out, i, peer_reduced(c, me * count + i));
  else if (w == ALL_GATHER || (w == GATHER && me == root))
    for (long i = 0; i < all; i++) wrong += !peer_holds(c, c->out, i, peer_value(c, (int)(i / count), i % count));
  else if (w == ALL_TO_ALL)
    for (long i = 0; i < all; i++)
      wrong += !peer_holds(c, c->out, i, peer_value(c, (int)(i / count), me * count + i % count));
  else if (w == BROADCAST)
    for (long i = 0; i < count; i++) wrong += !peer_holds(c, c->out, i, peer_value(c, root, i));
  else if (w == SCATTER)
    for (long i = 0; i < count; i++)
      wrong += !peer_holds(c, c->out, (c->in_place ? me * count : 0) + i, peer_value(c, root, me * count + i));
  else if (w == SCAN || (w == EXSCAN && me > 0))
    for (long i = 0; i < count; i++) wrong += !peer_holds(c, c->out, i, peer_prefix(c, w == SCAN ? me + 1 : me, i));
  else if (w == SENDRECV && me == 1)
    for (long i = 0; i < count; i++) wrong += !peer_holds(c, c->out, i, peer_value(c, 0, i));
  return wrong;
}

/* --- time --- */

static double peer_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The root of the next call: it turns, so that calls cannot overlap into a one-way pipeline. */
static int peer_root(int root, long *turn) { return root < 0 ? (int)((*turn)++ % peer.n) : root; }

static double peer_batch(const struct call *c, int root, long *turn, long calls) {
  peer.barrier();
  double t = peer_now();
  for (long i = 0; i < calls; i++) peer.call(c, peer_root(root, turn));
  return peer.max((peer_now() - t) / (double)calls);
}

static int peer_ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double peer_measure(const struct call *c, int root, long warmup, long iters, double seconds) {
  long turn = 0, unit = root < 0 ? peer.n : 1, batches = BATCHES, calls = 1;
  for (long i = 0; i < warmup; i++) peer.call(c, peer_root(root, &turn));
  if (iters > 0) {
    batches = iters < BATCHES ? iters : BATCHES;
    calls = iters / batches;
  } else {
    double each;
    for (long tries = 1;; tries *= 4) {
      each = peer_batch(c, root, &turn, tries);
      if (each < 1e-9) each = 1e-9;
      if (each * (double)tries > seconds / 16 || tries >= MOST) break;
    }
    double fit = seconds / BATCHES / each;
    if (fit < 1) batches = 3;
    calls = fit < 1 ? 1 : fit > MOST ? MOST : (long)fit;
  }
  calls = (calls + unit - 1) / unit * unit;
  double times[BATCHES];
  for (long b = 0; b < batches; b++) times[b] = peer_batch(c, root, &turn, calls);
  qsort(times, (size_t)batches, sizeof *times, peer_ascending);
  return times[batches / 2];
}

/* --- the conversation --- */

static int peer_socket = -1;

/* Ends this rank when its parent listens no more. */
static void peer_alone(int signal) {
  (void)signal;
  struct pollfd fd = {peer_socket, 0, 0};
  int saved = errno;
  if (poll(&fd, 1, 0) > 0 && (fd.revents & (POLLHUP | POLLERR))) _exit(1);
  errno = saved;
}

/* One core of those allowed, in turn. */
static void peer_pin(int rank) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all)) return;
  for (int core = 0, left = rank % CPU_COUNT(&all); core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &all) && left-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

/* Connects to the socket; to be called first. */
static void peer_join(const char *path) {
  struct sockaddr_un to;
  memset(&to, 0, sizeof to);
  to.sun_family = AF_UNIX;
  snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
  peer_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (peer_socket < 0 || connect(peer_socket, (struct sockaddr *)&to, sizeof to)) {
    fprintf(stderr, "cannot join %s: %s\n", path, strerror(errno));
    exit(1);
  }
  struct sigaction act;
  memset(&act, 0, sizeof act);
  act.sa_handler = peer_alone;
  act.sa_flags = SA_RESTART;
  sigaction(SIGIO, &act, NULL);
  fcntl(peer_socket, F_SETOWN, getpid());
  fcntl(peer_socket, F_SETFL, fcntl(peer_socket, F_GETFL) | O_ASYNC);
  peer_alone(0);
}

static void peer_say(const char *text) {
  for (size_t left = strlen(text); left;) {
    ssize_t sent = send(peer_socket, text, left, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) _exit(1);
    if (sent > 0) text += sent, left -= (size_t)sent;
  }
}

static int peer_find(const char *const *names, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

static void peer_run(const char *line) {
  char what[32], type[8], op[16], answer[300];
  int root, in_place, checks;
  long count, warmup, iters;
  double seconds;
  if (sscanf(line, "run %31s %7s %15s %ld %d %d %ld %ld %lf %d", what, type, op, &count, &root, &in_place, &warmup,
             &iters, &seconds, &checks) != 10) {
    if (!peer.me) peer_say("no it did not understand\n");
    return;
  }
  struct call c = {peer_find(collective_names, COLLECTIVES, what), peer_find(type_names, TYPES, type),
                   peer_find(op_names, OPS, op), in_place, count, 0, NULL, NULL};
  const char *why = c.what < 0   ? "it has no such collective"
                    : c.type < 0 ? "it is measured for f32 f64 i8 u8 i32 u32 i64 u64 only"
                    : c.op < 0   ? "it is measured for sum prod min max only"
                    : count * (peer_blocked(c.what) ? peer.n : 1) > INT32_MAX ? "it counts in 32 bits"
                                                                              : peer.lacks(&c);
  if (!why) {
    c.size = type_sizes[c.type];
    size_t bytes = ((size_t)count * (peer_blocked(c.what) ? (size_t)peer.n : 1) + 1) * (size_t)c.size;
    bytes = (bytes + 4095) / 4096 * 4096;
    c.in = (unsigned char *)aligned_alloc(4096, bytes), c.out = (unsigned char *)aligned_alloc(4096, bytes);
    if (peer.max(!c.in || !c.out) > 0) why = "it has no memory for that";
    else {
      double wrong = 0, all = 0;
      for (int i = 0; i < checks; i++) wrong += (double)peer_checked(&c, root < 0 ? i % peer.n : root);
      memset(c.in, 0, bytes), memset(c.out, 0, bytes);
      double t = peer_measure(&c, root, warmup, iters, seconds);
      wrong += (double)peer_checked(&c, root < 0 ? peer.n - 1 : root);
      for (int r = 0; r < peer.n; r++) all += peer.max(r == peer.me ? wrong : 0);
      snprintf(answer, sizeof answer, "ok %.4f %.0f\n", t * 1e6, all);
    }
    if (peer.done) peer.done();
    free(c.in), free(c.out);
  }
  if (why) snprintf(answer, sizeof answer, "no %s\n", why);
  if (!peer.me) peer_say(answer);
}

/* Executes the orders of the parent, once `peer` is filled in. Returns when the parent ends the session. */
static int peer_serve(void) {
  char line[400];
  FILE *commands = fdopen(peer_socket, "r");
  if (!commands) return 1;
  for (char *c = peer.version; *c; c++)
    if (*c == '\n' || *c == '\r') *c = 0;
  snprintf(line, sizeof line, "%d %d %d %s\n", peer.me, peer.n, (int)getpid(), peer.version);
  peer_say(line);
  while (fgets(line, sizeof line, commands)) {
    if (!strncmp(line, "end", 3)) return 0;
    peer_run(line);
  }
  _exit(1);
}
#endif
