// Gloo over its TCP transport as a peer of `roundelay bench`: SOCKET RANK SIZE FOLDER
//
// The calls are those that PyTorch makes: allreduce by ring, allgather by ring, broadcast and reduce by trees, linear
// alltoall. Its one reduce-scatter is an older class, by halving and doubling, which works in place.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#if __has_include(<gloo/reduce_scatter.h>)
#include <gloo/reduce_scatter.h>
#define OLD_REDUCE_SCATTER 1
#endif

#include <exception>
#include <memory>
#include <vector>

#include "peer.h"

static std::shared_ptr<gloo::Context> context;
static std::unique_ptr<gloo::Algorithm> reduce_scatter;

static const char *lacks(const struct call *c) {
#ifndef OLD_REDUCE_SCATTER
  if (c->what == REDUCE_SCATTER) return "this version has no reduce_scatter";
#endif
  // An allgather of nothing divides by zero.
  if (c->what != BARRIER && c->count == 0) return "it cannot move nothing";
  if (c->what == SENDRECV) return "it is measured for collectives only";
  if (c->what == SCAN || c->what == EXSCAN) return "it has no scan";
  if (c->in_place && (c->what == ALL_TO_ALL || c->what == GATHER || c->what == SCATTER)) return "it has no such call in place";
  return nullptr;
}

typedef void Reduce(void *, const void *, const void *, size_t);

template <typename T>
static Reduce *function(int op) {
  return op == SUM ? (Reduce *)gloo::sum<T> : op == PROD ? (Reduce *)gloo::product<T> : op == MIN ? (Reduce *)gloo::min<T> : (Reduce *)gloo::max<T>;
}

template <typename T>
static void all_reduce(const struct call *c, T *in, T *out) {
  gloo::AllreduceOptions o(context);
  o.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  if (!c->in_place) o.setInput(in, (size_t)c->count);
  o.setOutput(out, (size_t)c->count);
  o.setReduceFunction(function<T>(c->op));
  gloo::allreduce(o);
}

template <typename T>
static void rooted(const struct call *c, T *in, T *out, int root) {
  size_t count = (size_t)c->count;
  bool here = peer.me == root;
  if (c->what == BROADCAST) {
    gloo::BroadcastOptions o(context);
    if (here && !c->in_place) o.setInput(in, count);
    o.setOutput(out, count);
    o.setRoot(root);
    gloo::broadcast(o);
  } else if (c->what == REDUCE) {
    gloo::ReduceOptions o(context);
    if (!c->in_place) o.setInput(in, count);
    o.setOutput(out, count);
    o.setRoot(root);
    o.setReduceFunction(function<T>(c->op));
    gloo::reduce(o);
  } else if (c->what == GATHER) {
    gloo::GatherOptions o(context);
    o.setInput(in, count);
    if (here) o.setOutput(out, count * (size_t)peer.n);
    o.setRoot(root);
    gloo::gather(o);
  } else {
    gloo::ScatterOptions o(context);
    std::vector<T *> blocks;
    for (int r = 0; here && r < peer.n; r++) blocks.push_back(in + (size_t)r * count);
    if (here) o.setInputs(blocks, count);
    o.setOutput(out, count);
    o.setRoot(root);
    gloo::scatter(o);
  }
}

template <typename T>
static void halving_doubling(const struct call *c, T *in, T *out) {
#ifdef OLD_REDUCE_SCATTER
  size_t all = (size_t)c->count * (size_t)peer.n;
  if (!reduce_scatter) {
    typedef gloo::ReductionFunction<T> F;
    const F *op = c->op == SUM ? F::sum : c->op == PROD ? F::product : c->op == MIN ? F::min : F::max;
    reduce_scatter.reset(new gloo::ReduceScatterHalvingDoubling<T>(
        context, std::vector<T *>{out}, (int)all, std::vector<int>((size_t)peer.n, (int)c->count), op));
  }
  if (!c->in_place) memcpy(out, in, all * sizeof(T));
  reduce_scatter->run();
#else
  (void)c, (void)in, (void)out;
#endif
}

template <typename T>
static void typed(const struct call *c, int root) {
  T *in = (T *)c->in, *out = (T *)c->out;
  size_t count = (size_t)c->count, all = count * (size_t)peer.n;
  switch (c->what) {
    case ALL_REDUCE: all_reduce(c, in, out); break;
    case ALL_GATHER: {
      gloo::AllgatherOptions o(context);
      if (!c->in_place) o.setInput(in, count);
      o.setOutput(out, all);
      gloo::allgather(o);
      break;
    }
    case ALL_TO_ALL: {
      gloo::AlltoallOptions o(context);
      o.setInput(in, all);
      o.setOutput(out, all);
      gloo::alltoall(o);
      break;
    }
    case REDUCE_SCATTER: halving_doubling(c, in, out); break;
    case BARRIER: {
      gloo::BarrierOptions o(context);
      gloo::barrier(o);
      break;
    }
    default: rooted(c, in, out, root);
  }
}

static void call(const struct call *c, int root) {
  switch (c->type) {
    case F32: typed<float>(c, root); break;
    case F64: typed<double>(c, root); break;
    case I8: typed<int8_t>(c, root); break;
    case U8: typed<uint8_t>(c, root); break;
    case I32: typed<int32_t>(c, root); break;
    case U32: typed<uint32_t>(c, root); break;
    case I64: typed<int64_t>(c, root); break;
    default: typed<uint64_t>(c, root);
  }
}

static void barrier() {
  gloo::BarrierOptions o(context);
  gloo::barrier(o);
}

static double max(double x) {
  gloo::AllreduceOptions o(context);
  o.setOutput(&x, 1);
  o.setReduceFunction((Reduce *)gloo::max<double>);
  gloo::allreduce(o);
  return x;
}

static void done() { reduce_scatter.reset(); }

static void connect(const char *folder) {
  gloo::transport::tcp::attr attr;
  attr.iface = "lo";
  attr.ai_family = AF_INET;
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto joined = std::make_shared<gloo::rendezvous::Context>(peer.me, peer.n);
#ifdef GLOO_SHARED_STORE // newer versions keep the store
  auto store = std::make_shared<gloo::rendezvous::FileStore>(folder);
#else
  gloo::rendezvous::FileStore store(folder);
#endif
  joined->connectFullMesh(store, device);
  context = joined;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  peer_join(argv[1]);
  peer.me = atoi(argv[2]), peer.n = atoi(argv[3]);
  // Before its thread starts: one core for a rank and all its threads.
  peer_pin(peer.me);
  snprintf(peer.version, sizeof peer.version, "Gloo %d.%d.%d", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  peer.lacks = lacks, peer.call = call, peer.barrier = barrier, peer.max = max, peer.done = done;
  try {
    connect(argv[4]);
    return peer_serve();
  } catch (const std::exception &e) {
    fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
