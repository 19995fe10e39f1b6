// Streams of a GPU by torch's means, which need no header of CUDA: the caller's, one beside it for what goes on together
// with the caller's next work, and the memory of what was put into either.

#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <vector>

namespace roundelay {

inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Returns a stream of the driver as the C interface takes it.
inline void* given_stream(void* stream) {
  // cudaStreamLegacy: NULL, as torch has the default stream, stands for the communicator's own in the C interface.
  void* const legacy = reinterpret_cast<void*>(1);
  return stream == nullptr ? legacy : stream;
}

// A stream of a GPU for operations that go on beside what the caller puts into its own.
class Beside {
 public:
  explicit Beside(c10::Device device)
      : stream(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)), forked_(device.type()) {}

  // Has what is put there now come after what is in the current stream.
  void follow() {
    forked_.record(current_stream(stream.device()));
    forked_.block(stream);
  }

  const c10::Stream stream;

 private:
  c10::Event forked_;
};

// What was put into the stream that is current when this is made, up to the event that follows it. It keeps the tensors
// as long as it lives. If no stream has waited by then, their memory is used anew only when the GPU is done.
class Enqueued {
 public:
  // Without `awaitable` there is no event: no other stream waits for it.
  Enqueued(c10::Device device, std::vector<at::Tensor> memory, bool awaitable)
      : memory_(std::move(memory)), stream_(current_stream(device)), event_(device.type()) {
    if (awaitable) {
      event_.record(stream_);
      recorded_ = true;
    }
  }
  ~Enqueued() {
    if (!recorded_ || awaited_) {
      return;
    }
    try {
      for (const at::Tensor& tensor : memory_) {
        tensor.record_stream(stream_);
      }
    } catch (const std::exception&) {
      // The driver is gone, and its memory with it.
    }
  }
  Enqueued(const Enqueued&) = delete;
  Enqueued& operator=(const Enqueued&) = delete;

  // Has the current stream wait for it.
  void wait() {
    awaited_ = true;
    const c10::Stream current = current_stream(stream_.device());
    if (recorded_ && current != stream_) {
      event_.block(current);
    }
  }
  // Blocks this thread until the GPU is done with it.
  void synchronize() const {
    if (recorded_) {
      event_.synchronize();
    } else {
      stream_.synchronize();
    }
  }
  bool done() const {
    return recorded_ ? event_.query() : stream_.query();
  }
  c10::Stream stream() const {
    return stream_;
  }

 private:
  std::vector<at::Tensor> memory_;
  c10::Stream stream_;
  c10::Event event_;
  bool recorded_ = false;
  std::atomic<bool> awaited_{false};
};

} // namespace roundelay
