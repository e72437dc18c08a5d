// The logistic bound (eq. 11) for eight edges side by side.
#pragma once
#include "simd.hpp"

namespace considerate::CONSIDERATE_ISA {

// The bound at its best xi, where xi^2 = E[a^2] (eq. 16):
//   E[log sigma(a)] >= height + E[a] / 2,  of which minus the second derivative in E[a] is the curvature.
struct LogisticBound8 {
  v8 xi_squared, xi, t;  // t = exp(-xi)

  explicit LogisticBound8(v8 squared) : xi_squared(squared), xi(sqrt8(squared)), t(exp_minus(xi)) {}

  // 2 lambda(xi) = tanh(xi / 2) / (2 xi), and 1/4 at 0.
  v8 curvature() const {
    const v8 far = (splat(1.0f) - t) / ((splat(1.0f) + t) * splat(2.0f) * xi);
    v8 near = splat(31.0f / 1451520) * xi_squared - splat(17.0f / 80640);
    near = near * xi_squared + splat(1.0f / 480);
    near = near * xi_squared - splat(1.0f / 48);
    near = near * xi_squared + splat(0.25f);
    return select8(xi < splat(0.4f), near, far);
  }

  // log sigma(xi) - xi / 2
  v8 height() const { return -log1p_unit(t) - splat(0.5f) * xi; }
};

}  // namespace considerate::CONSIDERATE_ISA
