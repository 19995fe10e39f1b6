// oneCCL on hosts as a peer of `roundelay bench`: SOCKET RANK SIZE FOLDER
//
// Rank 0 leaves its address in the folder.
#include <oneapi/ccl.hpp>

#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "peer.h"

static std::unique_ptr<ccl::communicator> comm;

static const char *lacks(const struct call *c) {
  switch (c->what) {
    case ALL_REDUCE: case ALL_GATHER: case ALL_TO_ALL: case REDUCE_SCATTER: case BROADCAST: case REDUCE: case BARRIER: break;
    default: return "it is measured for the collectives that all its versions have";
  }
  if (c->in_place && (c->what == ALL_TO_ALL || c->what == REDUCE_SCATTER || c->what == ALL_GATHER)) return "it has no such call in place";
  return nullptr;
}

static void call(const struct call *k, int root) {
  static const ccl::datatype types[] = {ccl::datatype::float32, ccl::datatype::float64, ccl::datatype::int8,
                                        ccl::datatype::uint8,   ccl::datatype::int32,   ccl::datatype::uint32,
                                        ccl::datatype::int64,   ccl::datatype::uint64};
  static const ccl::reduction ops[] = {ccl::reduction::sum, ccl::reduction::prod, ccl::reduction::min, ccl::reduction::max};
  ccl::datatype type = types[k->type];
  ccl::reduction op = ops[k->op];
  size_t c = (size_t)k->count;
  void *from = k->in_place ? k->out : k->in;
  switch (k->what) {
    case ALL_REDUCE: ccl::allreduce(from, k->out, c, type, op, *comm).wait(); break;
    case ALL_GATHER: ccl::allgatherv(from, c, k->out, std::vector<size_t>((size_t)peer.n, c), type, *comm).wait(); break;
    case ALL_TO_ALL: ccl::alltoall(from, k->out, c, type, *comm).wait(); break;
    case REDUCE_SCATTER: ccl::reduce_scatter(from, k->out, c, type, op, *comm).wait(); break;
    case BROADCAST: // in place: out of place, the root copies
      if (peer.me == root && !k->in_place) memcpy(k->out, k->in, c * (size_t)k->size);
      ccl::broadcast(k->out, c, type, root, *comm).wait();
      break;
    case REDUCE: ccl::reduce(from, k->out, c, type, op, root, *comm).wait(); break;
    default: ccl::barrier(*comm);
  }
}

static void barrier() { ccl::barrier(*comm); }

static double max(double x) {
  double most = 0;
  ccl::allreduce(&x, &most, 1, ccl::reduction::max, *comm).wait();
  return most;
}

static void connect(const std::string &file) {
  ccl::init();
  ccl::shared_ptr_class<ccl::kvs> store;
  if (!peer.me) {
    store = ccl::create_main_kvs();
    auto address = store->get_address();
    std::ofstream(file + ".part", std::ios::binary).write(address.data(), (std::streamsize)address.size());
    rename((file + ".part").c_str(), file.c_str());
  } else {
    ccl::kvs::address_type address;
    while (!std::ifstream(file, std::ios::binary).read(address.data(), (std::streamsize)address.size())) usleep(5000);
    store = ccl::create_kvs(address);
  }
  comm.reset(new ccl::communicator(ccl::create_communicator(peer.n, peer.me, store)));
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  peer_join(argv[1]);
  peer.me = atoi(argv[2]), peer.n = atoi(argv[3]);
  peer_pin(peer.me);
  peer.lacks = lacks, peer.call = call, peer.barrier = barrier, peer.max = max;
  try {
    connect(std::string(argv[4]) + "/address");
    snprintf(peer.version, sizeof peer.version, "oneCCL %s", ccl::get_library_version().full);
    int status = peer_serve();
    comm.reset();
    return status;
  } catch (const std::exception &e) {
    fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
