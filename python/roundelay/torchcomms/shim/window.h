// Windows: tensors that the other ranks put to, in memory of the host or of the communicator's GPU.

#pragma once

#include <comms/torchcomms/TorchCommWindow.hpp>

#include "errors.h"
#include "work.h"

#include "../../native/window.h"

namespace torch::comms {
namespace {

class Window : public TorchCommWindow {
 public:
  // `comm` is the communicator of a device of its own, `host` that of the hosts.
  Window(const rl_comm* host, const rl_comm* comm, at::Device device, int size, milliseconds timeout)
      : host_(host), comm_(comm), device_(device), size_(size), timeout_(timeout) {}

  void tensor_register(const at::Tensor& tensor, bool) override {
    if (tensor.is_cuda() && tensor.device() != device_) {
      refuse("tensor_register: the tensor is on ", tensor.device(), ", the communicator on ", device_);
    }
    window_.add(tensor.is_cuda() ? comm_ : host_, tensor);
    buf_tensor_ = tensor;
    buf_dtype_ = tensor.scalar_type();
    buf_device_ = tensor.device();
    buf_shape_ = tensor.sizes().vec();
    win_size_ = tensor.nbytes();
  }

  void tensor_deregister() override {
    window_.check_there();
    window_.remove();
    buf_tensor_.reset();
    win_size_ = 0;
  }

  std::shared_ptr<TorchCommWindow> clone() override {
    refuse("clone: a window has one set of signals; make another with new_window");
  }

  c10::intrusive_ptr<TorchWork> put(
      const at::Tensor& tensor, int peer, size_t at, bool, const PutOptions& options) override {
    window_.check_there();
    return done({window_.put(tensor, of(peer), at, options.timeout)});
  }

  at::Tensor map_remote_tensor(int) override {
    refuse("map_remote_tensor not implemented: memory of tensors is not shared; use put, or all_gather");
  }

  c10::intrusive_ptr<TorchWork> signal(int peer, bool, const SignalOptions&) override {
    window_.check_there();
    window_.signal(of(peer));
    return done({});
  }

  // Waits here with `async_op` too: the signal is taken when it returns. On a GPU the current stream waits.
  c10::intrusive_ptr<TorchWork> wait_signal(int peer, bool, const WaitSignalOptions& options) override {
    window_.check_there();
    if (window_.is_on_gpu()) {
      window_.enqueue_wait(of(peer), options.timeout);
      return done({});
    }
    if (!window_.wait_signal(of(peer), options.timeout, [] {})) {
      refuse(
          "Timed out waiting ", options.timeout.count(), "ms for a signal of rank ", peer,
          ": see whether it calls signal");
    }
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  std::shared_ptr<TorchCommWindowAttr> get_attr(int peer) override {
    window_.check_there();
    of(peer);
    auto attributes = std::make_shared<TorchCommWindowAttr>();
    attributes->accessType = TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
    return attributes;
  }

 private:
  uint32_t of(int peer) const {
    if (peer < 0 || peer >= size_) {
      refuse("rank must be in range [0, ", size_, "), but got ", peer);
    }
    return static_cast<uint32_t>(peer);
  }

  c10::intrusive_ptr<TorchWork> done(Tensors kept) const {
    if (window_.is_on_gpu()) {
      return c10::make_intrusive<OnStream>(device_, std::move(kept), timeout_);
    }
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  const rl_comm* host_;
  const rl_comm* comm_;
  const at::Device device_;
  const int size_;
  const milliseconds timeout_;
  roundelay::TensorWindow window_{check};
};

} // namespace
} // namespace torch::comms
