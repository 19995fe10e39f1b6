// Texts and errors without C++ streams: a stream that is made here and one that is made in torch's libraries may belong
// to two copies of the C++ library, as where the compiler links it statically, and the locale of one means nothing to the
// other.

#pragma once

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <type_traits>

namespace roundelay {

inline std::string word(const std::string& text) {
  return text;
}
inline std::string word(const char* text) {
  return text;
}
// Returns the name of a type in Python, as `float32`.
inline std::string type_name(c10::ScalarType type) {
  return std::string(c10::getDtypeNames(type).first);
}
inline std::string word(c10::ScalarType type) {
  return "torch." + type_name(type);
}
inline std::string word(const c10::Device& device) {
  return device.str();
}
// Returns a layout by its name in Python.
inline std::string word(c10::Layout layout) {
  switch (layout) {
    case c10::Layout::Strided: return "strided";
    case c10::Layout::Sparse: return "sparse_coo";
    case c10::Layout::SparseCsr: return "sparse_csr";
    case c10::Layout::SparseCsc: return "sparse_csc";
    case c10::Layout::SparseBsr: return "sparse_bsr";
    case c10::Layout::SparseBsc: return "sparse_bsc";
    case c10::Layout::Mkldnn: return "_mkldnn";
    default: return "jagged";
  }
}
template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
std::string word(Number number) {
  return std::to_string(number);
}

// Returns one text of several parts.
template <class... Parts>
std::string words(const Parts&... parts) {
  std::string all;
  ((all += word(parts)), ...);
  return all;
}

// Returns numbers with commas between them.
template <class Numbers>
std::string listed(const Numbers& numbers) {
  std::string all;
  for (const auto& number : numbers) {
    all += (all.empty() ? "" : ", ") + word(number);
  }
  return all;
}

// Throws an error of torch's classes; of the standard's where ROUNDELAY_STANDARD_ERRORS is defined, as for torchcomms, which
// makes Python's of them.
template <class Kind, class... Parts>
[[noreturn]] void raise(const char* function, const char* file, uint32_t line, const Parts&... parts) {
#ifdef ROUNDELAY_STANDARD_ERRORS
  throw std::runtime_error(words(parts...));
#else
  throw Kind({function, file, line}, words(parts...));
#endif
}

inline void warn(const char* function, const char* file, uint32_t line, std::string text) {
  c10::warn(c10::Warning(c10::UserWarning(), {function, file, line}, std::move(text), false));
}

} // namespace roundelay

// Throws an error of a class of torch, with a text of several parts, unless the condition holds.
#define ROUNDELAY_CHECK(kind, condition, ...)                                         \
  do {                                                                                \
    if (C10_UNLIKELY(!(condition))) {                                                 \
      ::roundelay::raise<::c10::kind>(__func__, __FILE__, __LINE__, __VA_ARGS__);     \
    }                                                                                 \
  } while (false)

#define ROUNDELAY_WARN(...) ::roundelay::warn(__func__, __FILE__, __LINE__, ::roundelay::words(__VA_ARGS__))
