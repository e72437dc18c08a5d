// Arrays across the border to Python.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

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
template <class T>
using Maybe = std::optional<In<T>>;
template <class T>
using MaybeInOut = std::optional<InOut<T>>;

#ifdef MADV_HUGEPAGE
// Memory in pages of its own, huge ones if the system has them. It goes back to the system when it is freed.
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

// A new array that Python owns, not initialised. A large one asks for huge pages, as NumPy does: arrays that are read
// in random order, such as the walk's alias tables, would otherwise cost a walk of the page tables with every read.
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

template <class T>
Out<T> copied(const std::vector<T>& values) {
  auto out = new_array<T>({values.size()});
  std::copy(values.begin(), values.end(), out.data());
  return out;
}

// ValueError with this message unless a condition holds.
inline void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

inline void require_range(std::int64_t first, std::int64_t last, std::int64_t rows) {
  require(first >= 0 && first <= last && last <= rows, "rows out of range");
}

// A struct of pointers as Python holds it: it keeps the arrays alive that it points to.
template <class Struct>
class Held : public Struct {
 public:
  Held() = default;
  explicit Held(const Struct& values) : Struct(values) {}

  // The address of an array, which must have this size.
  template <class T>
  T* hold(const nb::ndarray<T, nb::c_contig, nb::device::cpu>& array, std::int64_t size, const char* message) {
    require(static_cast<std::int64_t>(array.size()) == size, message);
    objects_.push_back(nb::cast(array));
    return array.data();
  }
  // The address of an optional array, or null.
  template <class T>
  T* hold(const std::optional<nb::ndarray<T, nb::c_contig, nb::device::cpu>>& array, std::int64_t size,
          const char* message) {
    return array ? hold(*array, size, message) : nullptr;
  }
  // Another struct, whose arrays stay alive too.
  template <class Other>
  const Other& hold(const Held<Other>& other) {
    objects_.insert(objects_.end(), other.objects().begin(), other.objects().end());
    return other;
  }
  void hold(nb::object object) { objects_.push_back(std::move(object)); }
  const std::vector<nb::object>& objects() const { return objects_; }

 private:
  std::vector<nb::object> objects_;
};

}  // namespace considerate
