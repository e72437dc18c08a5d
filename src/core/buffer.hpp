// Memory and searches for the kernels. The kernels use no templates of the standard library: the linker might keep the
// copy that was built with one instruction set's flags for all of them.
#pragma once
#include <new>

#include "isa.hpp"

namespace considerate::CONSIDERATE_ISA {

// An array of numbers, aligned to a cache line and zeroed.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::int64_t size = 0) : size_(size) {
    if (size == 0) return;
    const std::size_t bytes = (static_cast<std::size_t>(size) * sizeof(T) + 63) / 64 * 64;
    data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
    if (!data_) throw std::bad_alloc();
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }

  T& operator[](std::int64_t i) { return data_[i]; }
  const T& operator[](std::int64_t i) const { return data_[i]; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  void zero() {
    if (data_) std::memset(static_cast<void*>(data_), 0, static_cast<std::size_t>(size_) * sizeof(T));
  }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

static inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
static inline std::int64_t greatest(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
static inline double greater_of(double a, double b) { return a > b ? a : b; }
static inline double lesser_of(double a, double b) { return a < b ? a : b; }

// The first place in [begin, end) of an ascending array with a value that is not below `value`.
template <class T>
static inline std::int64_t first_not_below(const T* values, std::int64_t begin, std::int64_t end, std::int64_t value) {
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (values[middle] < value) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// first_not_below, if the place is likely to be near `begin`.
template <class T>
static inline std::int64_t first_not_below_near(const T* values, std::int64_t begin, std::int64_t end,
                                                std::int64_t value) {
  std::int64_t low = begin, step = 8;
  while (low + step < end && values[low + step] < value) {
    low += step + 1;
    step *= 2;
  }
  return first_not_below(values, low, least(low + step, end), value);
}

}  // namespace considerate::CONSIDERATE_ISA
