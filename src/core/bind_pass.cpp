// The structs that a pass over rows reads.
#include "arrays.hpp"
#include "dispatch.hpp"

#include <cmath>

namespace considerate {

static std::int64_t length(const auto& array) { return static_cast<std::int64_t>(array.size()); }

// The pass with all checks of how its parts fit together.
static Held<Pass> checked_pass(const Held<Side>& own, const Held<Side>& other, const Held<Edges>& liked,
                               const Held<Edges>* unliked, const Held<Constants>& constants, const Held<Prior>* prior,
                               const Held<Expected>* expected, bool own_is_user, const Maybe<std::int64_t>& splits) {
  Held<Pass> pass;
  require(own.factors == other.factors, "own and other have different numbers of factors");
  pass.own = pass.hold(own);
  pass.other = pass.hold(other);
  pass.bias = own.bias_mean != nullptr;
  require(liked.rows == own.count, "liked: another number of rows than own");
  pass.liked = pass.hold(liked);
  if (unliked) {
    require(unliked->rows == own.count, "unliked: another number of rows than own");
    require(!unliked->weights || expected, "weights of unliked edges need the closed form");
    pass.unliked = pass.hold(*unliked);
  }
  pass.constants = pass.hold(constants);
  require(!constants.user_offset || constants.users == (own_is_user ? own.count : other.count),
          "user_offset: another length than the users");
  if (prior) {
    require((!prior->rows || prior->rows == own.count) && (!prior->width || prior->width == padded(own.factors)),
            "prior: another shape than own");
    pass.prior = pass.hold(*prior);
  }
  pass.own_is_user = own_is_user;
  if (expected) {
    const Side &users = own_is_user ? own : other, &items = own_is_user ? other : own;
    const bool has_corrections = expected->corrections != nullptr;
    require(
        !has_corrections || (!own_is_user && !splits && expected->corrected == liked.count() + pass.unliked.count()),
        "corrections belong to the items' edges, in one leaf");
    require(has_corrections || expected->shares.users == users.count, "expected: shares of other users");
    require(items.count <= expected->groups.items, "expected: groups of other items");
    for (const std::int64_t factors : {expected->items.factors, expected->users.factors})
      require(!factors || factors == own.factors, "expected: sums with another number of factors");
    require(!own_is_user || expected->shares.given || (expected->items.factors && expected->masses.values),
            "a pass over users needs the items' sums and the table of masses");
    pass.expected = expected;
    pass.hold(nb::find(*expected));
  }
  if (splits) {
    pass.leaves = length(*splits) - 1;
    require(pass.leaves >= 1 && splits->data()[0] == 0 && splits->data()[pass.leaves] == other.count,
            "splits: not from 0 to the other side's rows");
    pass.splits = pass.hold(*splits, pass.leaves + 1, "splits");
  }
  return pass;
}

// Shares whose arrays a pass may write to, or only read.
template <class Array>
static Held<Shares> shares_of(const In<double>& temperature, const Array& alpha, const Array& floor,
                              const Array& curvature, bool given) {
  Held<Shares> shares;
  require(alpha.ndim() == 2, "alpha: not [users, groups]");
  shares.users = static_cast<std::int64_t>(alpha.shape(0));
  shares.groups = static_cast<std::int64_t>(alpha.shape(1));
  const std::int64_t size = shares.users * shares.groups;
  shares.temperature = shares.hold(temperature, shares.users, "temperature: another length than alpha");
  shares.alpha = const_cast<float*>(shares.hold(alpha, size, "alpha"));
  shares.floor = const_cast<float*>(shares.hold(floor, size, "floor: another shape than alpha"));
  shares.curvature = const_cast<float*>(shares.hold(curvature, size, "curvature: another shape than alpha"));
  shares.given = given;
  return shares;
}

static Held<Expected> expected_of(const Held<Shares>& shares, const Held<Groups>& groups, const Held<ItemSums>* items,
                                  const Held<MassTable>* masses, const Held<UserSums>* users,
                                  const Maybe<double>& liked, const Maybe<float>& corrections) {
  Held<Expected> expected;
  const std::int64_t count = groups.count;
  require(count > 0 && (shares.groups == count || shares.users == 0), "groups: another number of groups than shares");
  expected.shares = expected.hold(shares);
  expected.shares.groups = count;
  expected.groups = expected.hold(groups);
  if (items) {
    require(items->groups == count, "items: sums of another number of groups");
    expected.items = expected.hold(*items);
  }
  if (masses) {
    require(masses->groups == count, "masses: a table of another number of groups");
    expected.masses = expected.hold(*masses);
  }
  if (users) {
    require(users->groups == count, "users: sums of another number of groups");
    expected.users = expected.hold(*users);
  }
  expected.liked = expected.hold(liked, shares.users * count * kLikedSums, "liked: not [users, groups, 7]");
  if (corrections) {
    expected.corrected = length(*corrections) / 2;
    expected.corrections = expected.hold(*corrections, 2 * expected.corrected, "corrections: not [edges, 2]");
  }
  return expected;
}

void bind_pass(nb::module_& m) {
  nb::class_<Held<Side>>(m, "Side", "Rows of one side of the posterior, packed as [mean | variance].")
      .def(
          "__init__",
          [](Held<Side>* self, std::int64_t factors, In<float> rows, Maybe<float> bias_mean, Maybe<float> bias_variance,
             Maybe<float> covariance) {
            require(factors > 0, "factors: not positive");
            Held<Side>& side = *new (self) Held<Side>();
            const std::int64_t width = 2 * padded(factors);
            side.factors = factors;
            side.count = length(rows) / width;
            side.rows = side.hold(rows, side.count * width, "rows: another width than 2 * padded(factors)");
            require(bias_mean.has_value() == bias_variance.has_value(), "a bias has a mean and a variance");
            side.bias_mean = side.hold(bias_mean, side.count, "bias_mean: another length than rows");
            side.bias_variance = side.hold(bias_variance, side.count, "bias_variance: another length than rows");
            side.covariance = side.hold(covariance, side.count * triangle(factors), "covariance: another shape");
          },
          nb::arg("factors"), nb::arg("rows"), nb::arg("bias_mean") = nb::none(), nb::arg("bias_variance") = nb::none(),
          nb::arg("covariance") = nb::none());

  nb::class_<Held<Edges>>(m, "Edges", "Edges by row, with the indices of the other side.")
      .def(
          "__init__",
          [](Held<Edges>* self, In<std::int64_t> starts, In<std::int32_t> indices, Maybe<float> weights) {
            require(starts.size() > 0, "starts: empty");
            Held<Edges>& edges = *new (self) Held<Edges>();
            edges.rows = length(starts) - 1;
            edges.starts = edges.hold(starts, edges.rows + 1, "starts");
            require(edges.count() <= length(indices), "indices: fewer than starts asks for");
            edges.indices = edges.hold(indices, length(indices), "indices");
            require(!weights || edges.count() <= length(*weights), "weights: fewer than starts asks for");
            if (weights) edges.weights = edges.hold(*weights, length(*weights), "weights");
          },
          nb::arg("starts"), nb::arg("indices"), nb::arg("weights") = nb::none());

  nb::class_<Held<Prior>>(m, "Prior", "Gaussian priors of single rows.")
      .def(
          "__init__",
          [](Held<Prior>* self, Maybe<float> mean, Maybe<float> precision, Maybe<float> bias_mean,
             Maybe<float> bias_precision) {
            Held<Prior>& prior = *new (self) Held<Prior>();
            for (const Maybe<float>* array : {&mean, &precision, &bias_mean, &bias_precision})
              if (*array) prior.rows = static_cast<std::int64_t>((*array)->shape(0));
            for (const Maybe<float>* array : {&mean, &precision}) {
              if (!*array) continue;
              require((*array)->ndim() == 2, "mean or precision: not [rows, padded]");
              prior.width = static_cast<std::int64_t>((*array)->shape(1));
            }
            const std::int64_t size = prior.rows * prior.width;
            prior.mean = prior.hold(mean, size, "mean: another shape");
            prior.precision = prior.hold(precision, size, "precision: another shape than the mean");
            prior.bias_mean = prior.hold(bias_mean, prior.rows, "bias_mean: another number of rows");
            prior.bias_precision = prior.hold(bias_precision, prior.rows, "bias_precision: another number of rows");
          },
          nb::arg("mean") = nb::none(), nb::arg("precision") = nb::none(), nb::arg("bias_mean") = nb::none(),
          nb::arg("bias_precision") = nb::none());

  nb::class_<Held<Constants>>(m, "Constants", "The numbers that all rows of a pass share.")
      .def(
          "__init__",
          [](Held<Constants>* self, double offset, double likelihood_weight, double tau, double tau_bias,
             double epsilon, Maybe<float> user_offset, bool slope) {
            Held<Constants>& constants = *new (self) Held<Constants>();
            constants.offset = static_cast<float>(offset);
            constants.likelihood_weight = static_cast<float>(likelihood_weight);
            constants.tau = static_cast<float>(tau);
            constants.tau_bias = static_cast<float>(tau_bias);
            constants.epsilon = static_cast<float>(epsilon);
            constants.slope = slope;
            if (!user_offset) return;
            constants.users = length(*user_offset);
            constants.user_offset = constants.hold(*user_offset, constants.users, "user_offset");
          },
          nb::arg("offset") = 0.0, nb::arg("likelihood_weight") = 1.0, nb::arg("tau") = 1.0, nb::arg("tau_bias") = 1.0,
          nb::arg("epsilon") = 1.0, nb::arg("user_offset") = nb::none(), nb::arg("slope") = false);

  nb::class_<Held<Shares>>(m, "Shares", "alpha, floor and l of some users and all groups.")
      .def(
          "__init__",
          [](Held<Shares>* self, In<double> temperature, InOut<float> alpha, InOut<float> floor,
             InOut<float> curvature) {
            new (self) Held<Shares>(shares_of(temperature, alpha, floor, curvature, false));
          },
          nb::arg("temperature"), nb::arg("alpha").noconvert(), nb::arg("floor").noconvert(),
          nb::arg("curvature").noconvert(), "Shares that a pass over users writes to.")
      .def_static(
          "given",
          [](In<double> temperature, In<float> alpha, In<float> floor, In<float> curvature) {
            return shares_of(temperature, alpha, floor, curvature, true);
          },
          nb::arg("temperature"), nb::arg("alpha"), nb::arg("floor"), nb::arg("curvature"),
          "Shares that no pass writes to.");

  nb::class_<Held<Groups>>(m, "Groups", "The group and beta of each item.")
      .def(
          "__init__",
          [](Held<Groups>* self, In<std::int32_t> group_of_item, In<double> beta, std::int64_t count) {
            Held<Groups>& groups = *new (self) Held<Groups>();
            groups.items = length(beta);
            groups.count = count;
            groups.group_of_item = groups.hold(group_of_item, groups.items, "group_of_item: another length than beta");
            groups.beta = groups.hold(beta, groups.items, "beta");
            for (std::int64_t n = 0; n < groups.items; ++n)
              require(groups.group_of_item[n] >= 0 && groups.group_of_item[n] < count, "a group is out of range");
          },
          nb::arg("group_of_item"), nb::arg("beta"), nb::arg("count"));

  nb::class_<Held<ItemSums>>(m, "ItemSums", "Sums over the items of each group.")
      .def(
          "__init__",
          [](Held<ItemSums>* self, In<double> second, In<double> first, In<double> first_bias, In<double> scalars) {
            Held<ItemSums>& sums = *new (self) Held<ItemSums>();
            require(first.ndim() == 2, "first: not [2 groups, K]");
            const auto rows = static_cast<std::int64_t>(first.shape(0));
            sums.factors = static_cast<std::int64_t>(first.shape(1));
            sums.groups = rows / 2;
            sums.second = sums.hold(second, rows * triangle(sums.factors), "second: not [2 groups, K (K + 1) / 2]");
            sums.first = sums.hold(first, rows * sums.factors, "first");
            sums.first_bias = sums.hold(first_bias, rows * sums.factors, "first_bias: another shape than first");
            sums.scalars = sums.hold(scalars, rows * 4, "scalars: not [2 groups, 4]");
          },
          nb::arg("second"), nb::arg("first"), nb::arg("first_bias"), nb::arg("scalars"));

  nb::class_<Held<UserSums>>(m, "UserSums", "Sums over users for each group.")
      .def(
          "__init__",
          [](Held<UserSums>* self, In<double> second, In<double> first, In<double> scalars) {
            Held<UserSums>& sums = *new (self) Held<UserSums>();
            require(first.ndim() == 3 && first.shape(1) == 3, "first: not [2 groups, 3, K]");
            const auto rows = static_cast<std::int64_t>(first.shape(0));
            sums.factors = static_cast<std::int64_t>(first.shape(2));
            sums.groups = rows / 2;
            sums.second = sums.hold(second, rows * triangle(sums.factors), "second: not [2 groups, K (K + 1) / 2]");
            sums.first = sums.hold(first, rows * 3 * sums.factors, "first");
            sums.scalars = sums.hold(scalars, rows * 3, "scalars: not [2 groups, 3]");
          },
          nb::arg("second"), nb::arg("first"), nb::arg("scalars"));

  nb::class_<Held<MassTable>>(m, "MassTable", "The mass of each group at a grid of log temperatures.")
      .def(
          "__init__",
          [](Held<MassTable>* self, In<double> values, double start, double step) {
            Held<MassTable>& table = *new (self) Held<MassTable>();
            require(values.ndim() == 3 && values.shape(1) >= 2 && values.shape(2) == 2,
                    "values: not [groups, grid, 2]");
            table.groups = static_cast<std::int64_t>(values.shape(0));
            table.grid = static_cast<std::int64_t>(values.shape(1));
            table.values = table.hold(values, length(values), "values");
            table.start = start;
            table.step = step;
          },
          nb::arg("values"), nb::arg("start"), nb::arg("step"));

  nb::class_<Held<Expected>>(m, "Expected", "The closed form of the expectation over q(H).")
      .def(
          "__init__",
          [](Held<Expected>* self, const Held<Shares>& shares, const Held<Groups>& groups, const Held<ItemSums>* items,
             const Held<MassTable>* masses, const Held<UserSums>* users, Maybe<double> liked,
             Maybe<float> corrections) {
            new (self) Held<Expected>(expected_of(shares, groups, items, masses, users, liked, corrections));
          },
          nb::arg("shares"), nb::arg("groups"), nb::kw_only(), nb::arg("items").none() = nb::none(),
          nb::arg("masses").none() = nb::none(), nb::arg("users").none() = nb::none(), nb::arg("liked") = nb::none(),
          nb::arg("corrections") = nb::none());

  nb::class_<Held<Pass>>(m, "Pass", "Everything that a pass over the rows of one side reads.")
      .def(
          "__init__",
          [](Held<Pass>* self, const Held<Side>& own, const Held<Side>& other, const Held<Edges>& liked,
             const Held<Edges>* unliked, const Held<Constants>& constants, const Held<Prior>* prior,
             const Held<Expected>* expected, bool own_is_user, Maybe<std::int64_t> splits) {
            new (self)
                Held<Pass>(checked_pass(own, other, liked, unliked, constants, prior, expected, own_is_user, splits));
          },
          nb::arg("own"), nb::arg("other"), nb::arg("liked"), nb::arg("unliked").none(), nb::arg("constants"),
          nb::kw_only(), nb::arg("prior").none() = nb::none(), nb::arg("expected").none() = nb::none(),
          nb::arg("own_is_user"), nb::arg("splits") = nb::none());

  nb::class_<Held<FullPass>>(m, "FullPass", "A pass with covariances and a Gaussian prior that all rows share.")
      .def(
          "__init__",
          [](Held<FullPass>* self, const Held<Pass>& pass, In<float> prior_precision, In<float> prior_pull,
             bool quadrature) {
            Held<FullPass>& full = *new (self) Held<FullPass>();
            static_cast<Pass&>(full) = full.hold(pass);
            require(!pass.expected && !pass.splits, "a pass with covariances has neither a closed form nor splits");
            const std::int64_t factors = pass.own.factors;
            full.prior_precision = full.hold(prior_precision, triangle(factors), "prior_precision: another size");
            full.prior_pull = full.hold(prior_pull, factors, "prior_pull: another length than the factors");
            full.quadrature = quadrature;
            for (const Edges* edges : {&pass.liked, &pass.unliked}) {
              if (!edges->starts) continue;
              require(edges->starts[0] >= 0, "starts are negative");
              for (std::int64_t r = 0; r < edges->rows; ++r)
                require(edges->starts[r] <= edges->starts[r + 1], "starts descend");
              for (std::int64_t e = edges->starts[0]; e < edges->count(); ++e)
                require(edges->indices[e] >= 0 && edges->indices[e] < pass.other.count, "an edge is out of range");
            }
          },
          nb::arg("pass_"), nb::arg("prior_precision"), nb::arg("prior_pull"), nb::arg("quadrature") = false);
}

}  // namespace considerate
