// Arrays across the border to Python.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace considerate {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using InOut = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::c_contig>;

// A new array that Python owns; its contents are not set. A large one asks for huge pages, as NumPy does: what is read in
// no order, such as the walk's alias tables, would else cost a walk of the page tables with every read.
template <class T>
Out<T> new_array(std::initializer_list<std::size_t> shape) {
  constexpr std::size_t page = std::size_t{1} << 21;
  std::size_t size = sizeof(T);
  for (std::size_t n : shape) size *= n;
  const std::size_t unit = size < page ? 64 : page;
  void* data = std::aligned_alloc(unit, (size / unit + 1) * unit);
  if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (unit == page) madvise(data, size, MADV_HUGEPAGE);
#endif
  nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
  return Out<T>(static_cast<T*>(data), shape, owner);
}

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace considerate
