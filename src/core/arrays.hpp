// Arrays across the border to Python.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
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

#ifdef MADV_HUGEPAGE
// Memory of its own pages, huge ones where there are any: it goes back to the system when it is freed.
struct Mapping {
  static constexpr std::size_t kPage = std::size_t{1} << 21;
  void* pages;
  std::size_t size;

  explicit Mapping(std::size_t bytes)
      : pages(mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        size(bytes + kPage) {
    if (pages == MAP_FAILED) throw std::bad_alloc();
    madvise(data(), bytes, MADV_HUGEPAGE);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(pages, size); }
  void* data() const { return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(pages) / kPage + 1) * kPage); }
};
#endif

// A new array that Python owns; its contents are not set. A large one asks for huge pages, as NumPy does: what is read in
// no order, such as the walk's alias tables, would else cost a walk of the page tables with every read.
template <class T>
Out<T> new_array(std::initializer_list<std::size_t> shape) {
  std::size_t size = 1;
  for (std::size_t n : shape) size *= n;
#ifdef MADV_HUGEPAGE
  if (size * sizeof(T) >= 2 * Mapping::kPage) {
    auto* mapping = new Mapping(size * sizeof(T));
    nb::capsule owner(mapping, [](void* p) noexcept { delete static_cast<Mapping*>(p); });
    return Out<T>(static_cast<T*>(mapping->data()), shape, owner);
  }
#endif
  T* data = new T[size > 0 ? size : 1];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Out<T>(data, shape, owner);
}

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace considerate
