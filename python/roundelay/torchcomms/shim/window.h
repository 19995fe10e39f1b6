// Windows: tensors in host memory that the other ranks put to.

#pragma once

#include <comms/torchcomms/TorchCommWindow.hpp>

#include "work.h"

namespace torch::comms {
namespace {

class Window : public TorchCommWindow {
 public:
  Window(const rl_comm* comm, int size) : comm_(comm), size_(size) {}

  ~Window() override {
    rl().rl_window_drop(window_);
  }

  // Collective. The tensor lives as long as it is registered.
  void tensor_register(const at::Tensor& tensor, bool) override {
    if (window_ != nullptr) {
      refuse("tensor_register: the window has a tensor already: call tensor_deregister first");
    }
    if (!tensor.is_cpu() || !tensor.is_contiguous()) {
      refuse("tensor_register: the tensor must be contiguous and on the CPU; it is on ", tensor.device());
    }
    check(rl().rl_window_create(
        comm_, tensor.data_ptr(), tensor.nbytes(), RL_I8, RL_READ | RL_WRITE | RL_ATOMICS, nullptr, &window_));
    buf_tensor_ = tensor;
    buf_dtype_ = tensor.scalar_type();
    buf_device_ = tensor.device();
    buf_shape_ = tensor.sizes().vec();
    win_size_ = tensor.nbytes();
  }

  void tensor_deregister() override {
    there("tensor_deregister");
    check(rl().rl_window_free(std::exchange(window_, nullptr)));
    buf_tensor_.reset();
    win_size_ = 0;
  }

  std::shared_ptr<TorchCommWindow> clone() override {
    refuse("clone: a window has one set of signals; make another with new_window");
  }

  // The tensor may be overwritten when it returns; the peer sees it after a signal.
  c10::intrusive_ptr<TorchWork> put(
      const at::Tensor& tensor, int peer, size_t at, bool, const PutOptions& options) override {
    there("put");
    if (!tensor.is_cpu() || tensor.scalar_type() != buf_dtype_) {
      refuse(
          "put: the tensor is ", tensor.scalar_type(), " on ", tensor.device(), ", the window ", buf_dtype_, " on cpu");
    }
    const at::Tensor data = tensor.contiguous();
    rl_options with{};
    with.timeout_ms = std::max<int64_t>(options.timeout.count(), 0);
    check(rl().rl_put(
        window_, data.data_ptr(), data.nbytes(), of(peer), at * tensor.element_size(), &with, nullptr));
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  at::Tensor map_remote_tensor(int) override {
    refuse("map_remote_tensor not implemented: memory of tensors is not shared; use put, or all_gather");
  }

  c10::intrusive_ptr<TorchWork> signal(int peer, bool, const SignalOptions&) override {
    there("signal");
    check(rl().rl_signal(window_, of(peer), nullptr));
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  // Waits here with `async_op` too: the signal is taken when it returns.
  c10::intrusive_ptr<TorchWork> wait_signal(int peer, bool, const WaitSignalOptions& options) override {
    there("wait_signal");
    if (!roundelay::wait_signal(window_, of(peer), options.timeout, check, [] {})) {
      refuse(
          "Timed out waiting ", options.timeout.count(), "ms for a signal of rank ", peer,
          ": see whether it calls signal");
    }
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  std::shared_ptr<TorchCommWindowAttr> get_attr(int peer) override {
    there("get_attr");
    of(peer);
    auto attributes = std::make_shared<TorchCommWindowAttr>();
    attributes->accessType = TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
    return attributes;
  }

 private:
  void there(const char* what) const {
    if (window_ == nullptr) {
      refuse(what, ": the window has no tensor: call tensor_register on all ranks first");
    }
  }
  uint32_t of(int peer) const {
    if (peer < 0 || peer >= size_) {
      refuse("rank must be in range [0, ", size_, "), but got ", peer);
    }
    return static_cast<uint32_t>(peer);
  }
  static void check(int32_t status) {
    if (status != 0) {
      throw std::runtime_error(Work::words(roundelay::last_error()));
    }
  }

  const rl_comm* comm_;
  const int size_;
  rl_window* window_ = nullptr;
};

} // namespace
} // namespace torch::comms
