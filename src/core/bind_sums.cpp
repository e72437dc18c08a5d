#include <nanobind/nanobind.h>

namespace considerate {
void bind_sums(nanobind::module_& m) { (void)m; }
}  // namespace considerate
