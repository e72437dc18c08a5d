#include <nanobind/nanobind.h>

namespace considerate {
void bind_graph(nanobind::module_& m) { (void)m; }
}  // namespace considerate
