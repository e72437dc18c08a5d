// Arrays across the border to Python.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace considerate {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using InOut = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::c_contig>;

// A new array that Python owns; its contents are not set.
template <class T>
Out<T> new_array(std::initializer_list<std::size_t> shape) {
  std::size_t size = 1;
  for (std::size_t n : shape) size *= n;
  T* data = new T[size > 0 ? size : 1];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Out<T>(data, shape, owner);
}

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace considerate
