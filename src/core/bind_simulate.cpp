#include <nanobind/nanobind.h>

namespace considerate {
void bind_simulate(nanobind::module_& m) { (void)m; }
}  // namespace considerate
