#include "arrays.hpp"
#include "dispatch.hpp"
#include "drawer.hpp"
#include "saturation.hpp"
#include "walk_table.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <vector>

namespace considerate {

struct PyTilt {
  Tilt raw;
  std::int64_t users, items;
  std::vector<nb::object> held;  // the arrays stay as long as this
};

struct PyKnown {
  Known raw;
  Rules rules;
  std::int64_t users = 0, items = 0;
  std::vector<nb::object> held;
};

template <class T>
static const T* held_array(PyKnown& known, const std::optional<In<T>>& array, std::int64_t size, const char* what) {
  if (!array) return nullptr;
  require(static_cast<std::int64_t>(array->size()) == size, what);
  known.held.push_back(nb::cast(*array));
  return array->data();
}

static ItemLists item_lists(PyKnown& known, const std::optional<In<std::int64_t>>& starts,
                            const std::optional<In<std::int32_t>>& items) {
  require(starts.has_value() == items.has_value(), "starts without items");
  if (!starts) return {};
  require(static_cast<std::int64_t>(starts->size()) == known.users + 1 && starts->data()[0] == 0, "starts");
  for (std::int64_t m = 0; m < known.users; ++m) require(starts->data()[m] <= starts->data()[m + 1], "starts");
  require(starts->data()[known.users] == static_cast<std::int64_t>(items->size()), "starts");
  for (std::size_t e = 0; e < items->size(); ++e)
    require(items->data()[e] >= 0 && items->data()[e] < known.items, "an item is out of range");
  known.held.push_back(nb::cast(*starts));
  known.held.push_back(nb::cast(*items));
  return {starts->data(), items->data()};
}

// One side of a posterior as the kernels read it: its rows.
static std::int64_t read_side(PyTilt& tilt, Side& side, const In<float>& rows,
                              const std::optional<In<float>>& bias_mean,
                              const std::optional<In<float>>& bias_variance) {
  const std::int64_t width = 2 * padded(tilt.raw.posterior.factors),
                     count = static_cast<std::int64_t>(rows.size()) / width;
  require(static_cast<std::int64_t>(rows.size()) == count * width, "rows of another width");
  require(bias_mean.has_value() == bias_variance.has_value(), "biases without variances");
  side.rows = rows.data();
  tilt.held.push_back(nb::cast(rows));
  if (bias_mean) {
    require(static_cast<std::int64_t>(bias_mean->size()) == count, "as many biases as rows");
    require(static_cast<std::int64_t>(bias_variance->size()) == count, "as many biases as rows");
    side.bias_mean = bias_mean->data();
    side.bias_variance = bias_variance->data();
    tilt.held.push_back(nb::cast(*bias_mean));
    tilt.held.push_back(nb::cast(*bias_variance));
  }
  return count;
}

static DrawSettings settings_from(std::uint64_t seed, std::uint64_t sweep, double rate, const In<double>& weights,
                                  const In<std::uint64_t>& thresholds, const In<std::int32_t>& aliases,
                                  const PyWalkTable* walk, const PyKnown* known, std::size_t users) {
  const auto size = static_cast<std::int64_t>(weights.size());
  require(thresholds.size() == weights.size() && aliases.size() == weights.size(),
          "the alias table is of another size");
  std::int64_t support = 0;
  for (std::int64_t n = 0; n < size; ++n) support += weights.data()[n] > 0;
  require(walk == nullptr || walk->items == size, "the walk's table is of another size");
  require(walk == nullptr || walk->raw.slots != nullptr, "the walk's table has no slots to draw from");
  DrawSettings settings{};
  settings.seed = seed;
  settings.sweep = sweep;
  settings.rate = rate;
  settings.weights = weights.data();
  settings.table = {thresholds.data(), aliases.data(), size};
  settings.support = support;
  settings.walk = walk == nullptr ? nullptr : &walk->raw;
  if (known != nullptr) {
    require(known->users == static_cast<std::int64_t>(users) && known->items == size, "known pairs of other users");
    settings.known = known->raw;
  }
  return settings;
}

void bind_draws(nb::module_& m) {
  using Biases = std::optional<In<float>>;
  nb::class_<PyTilt>(m, "Tilt",
                     "A posterior that draws lean on, away from what is liked, or towards it where strength < 0.")
      .def(
          "__init__",
          [](PyTilt* self, double strength, double offset, std::int64_t factors, In<float> users, Biases user_bias_mean,
             Biases user_bias_variance, In<float> items, Biases item_bias_mean, Biases item_bias_variance,
             Biases user_offset) {
            require(factors > 0, "factors");
            new (self) PyTilt();
            self->raw.strength = strength;
            self->raw.moments = kernels_in_use()->pair_moments;
            Pass& posterior = self->raw.posterior;
            posterior.factors = factors;
            posterior.offset = static_cast<float>(offset);
            self->users = read_side(*self, posterior.own, users, user_bias_mean, user_bias_variance);
            self->items = read_side(*self, posterior.other, items, item_bias_mean, item_bias_variance);
            if (!user_offset) return;
            require(static_cast<std::int64_t>(user_offset->size()) == self->users, "user_offset");
            self->held.push_back(nb::cast(*user_offset));
            posterior.user_offset = user_offset->data();
          },
          nb::arg("strength"), nb::arg("offset"), nb::arg("factors"), nb::arg("users"),
          nb::arg("user_bias_mean").none(), nb::arg("user_bias_variance").none(), nb::arg("items"),
          nb::arg("item_bias_mean").none(), nb::arg("item_bias_variance").none(),
          nb::arg("user_offset").none() = nb::none());
  using Longs = std::optional<In<std::int64_t>>;
  using Ints = std::optional<In<std::int32_t>>;
  using Doubles = std::optional<In<double>>;
  nb::class_<PyKnown>(m, "Known", "What is known of h beside the likes, by the rows of some users.")
      .def(
          "__init__",
          [](PyKnown* self, std::int64_t users, std::int64_t items, Longs considered_starts, Ints considered,
             Longs impossible_starts, Ints impossible, Ints user_class, Ints item_class,
             std::optional<In<std::uint64_t>> allowed, std::int64_t user_classes, Doubles user_times,
             Doubles item_times, Longs most) {
            new (self) PyKnown();
            self->users = users;
            self->items = items;
            self->raw.considered = item_lists(*self, considered_starts, considered);
            self->raw.impossible = item_lists(*self, impossible_starts, impossible);
            if (!most) return;
            Rules& rules = self->rules;
            rules.most = held_array(*self, most, users, "most");
            if (allowed) {
              require(user_class && item_class && user_classes > 0, "classes");
              rules.words = static_cast<std::int64_t>(allowed->size()) / user_classes;
              rules.allowed = held_array(*self, allowed, user_classes * rules.words, "allowed");
              rules.user_class = held_array(*self, user_class, users, "user_class");
              rules.item_class = held_array(*self, item_class, items, "item_class");
              for (std::int64_t m = 0; m < users; ++m)
                require(rules.user_class[m] >= 0 && rules.user_class[m] < user_classes, "a class is out of range");
              for (std::int64_t n = 0; n < items; ++n)
                require(rules.item_class[n] >= 0 && rules.item_class[n] < 64 * rules.words, "a class is out of range");
            }
            require(user_times.has_value() == item_times.has_value(), "times of one side");
            rules.user_times = held_array(*self, user_times, 2 * users, "user_times");
            rules.item_times = held_array(*self, item_times, 2 * items, "item_times");
            self->raw.rules = &rules;
          },
          nb::kw_only(), nb::arg("users"), nb::arg("items"), nb::arg("considered_starts") = nb::none(),
          nb::arg("considered") = nb::none(), nb::arg("impossible_starts") = nb::none(),
          nb::arg("impossible") = nb::none(), nb::arg("user_class") = nb::none(), nb::arg("item_class") = nb::none(),
          nb::arg("allowed") = nb::none(), nb::arg("user_classes") = 0, nb::arg("user_times") = nb::none(),
          nb::arg("item_times") = nb::none(), nb::arg("most") = nb::none());
  m.def(
      "alias_table",
      [](In<double> weights) {
        auto thresholds = new_array<std::uint64_t>({weights.size()});
        auto aliases = new_array<std::int32_t>({weights.size()});
        {
          nb::gil_scoped_release release;
          build_alias(weights.data(), static_cast<std::int64_t>(weights.size()), thresholds.data(), aliases.data());
        }
        return std::make_tuple(thresholds, aliases);
      },
      nb::arg("weights"), "Walker's alias table of non-negative weights: (thresholds, aliases).");
  m.def(
      "count_negatives",
      [](std::uint64_t seed, std::uint64_t sweep, double rate, In<double> weights, In<std::uint64_t> thresholds,
         In<std::int32_t> aliases, In<std::int64_t> starts, In<std::int32_t> liked, std::int64_t first,
         std::int64_t last, InOut<std::int64_t> counts, std::int64_t first_user, const PyKnown* known) {
        DrawSettings settings =
            settings_from(seed, sweep, rate, weights, thresholds, aliases, nullptr, known, starts.size() - 1);
        settings.first_user = first_user;
        require(first >= 0 && first <= last && last < static_cast<std::int64_t>(starts.size()), "rows out of range");
        require(static_cast<std::int64_t>(counts.size()) >= last, "counts is too short");
        nb::gil_scoped_release release;
        for (std::int64_t user = first; user < last; ++user) {
          const std::int64_t begin = starts.data()[user];
          counts.data()[user] = negatives_of(settings, liked.data() + begin, starts.data()[user + 1] - begin, user);
        }
      },
      nb::arg("seed"), nb::arg("sweep"), nb::arg("rate"), nb::arg("weights"), nb::arg("thresholds"), nb::arg("aliases"),
      nb::arg("starts"), nb::arg("liked"), nb::arg("first"), nb::arg("last"), nb::arg("counts").noconvert(),
      nb::arg("first_user") = 0, nb::arg("known").none() = nb::none(),
      "How many items each of the users first..last has considered and not liked; row 0 is user `first_user`.");
  m.def(
      "expected_negatives",
      [](double rate, In<double> weights, In<std::int64_t> starts, In<std::int32_t> liked, const PyKnown* known) {
        const std::size_t users = starts.size() - 1;
        DrawSettings settings{};
        settings.rate = rate;
        settings.weights = weights.data();
        settings.table.size = static_cast<std::int64_t>(weights.size());
        for (std::size_t n = 0; n < weights.size(); ++n) settings.support += weights.data()[n] > 0;
        if (known != nullptr) {
          require(known->users == static_cast<std::int64_t>(users) && known->items == settings.table.size,
                  "known pairs of other users");
          settings.known = known->raw;
        }
        require(starts.data()[users] <= static_cast<std::int64_t>(liked.size()), "starts");
        auto expected = new_array<double>({users});
        nb::gil_scoped_release release;
        for (std::size_t user = 0; user < users; ++user) {
          const std::int64_t begin = starts.data()[user], degree = starts.data()[user + 1] - begin;
          const auto row = static_cast<std::int64_t>(user);
          expected.data()[user] = UnlikedEdges(settings, liked.data() + begin, degree, row).expected();
        }
        return expected;
      },
      nb::arg("rate"), nb::arg("weights"), nb::arg("starts"), nb::arg("liked"), nb::arg("known").none() = nb::none(),
      "Expected number of unliked edges of each user: known ones, and drawn ones up to `rate` times the likes or as "
      "many "
      "as there are items left.");
  m.def(
      "draw_negatives",
      [](std::uint64_t seed, std::uint64_t sweep, double rate, In<double> weights, In<std::uint64_t> thresholds,
         In<std::int32_t> aliases, In<std::int64_t> starts, In<std::int32_t> liked, std::int64_t first,
         std::int64_t last, In<std::int64_t> out_starts, InOut<std::int32_t> out, std::int64_t first_user,
         const PyWalkTable* walk, const PyTilt* tilt, const PyKnown* known) {
        DrawSettings settings =
            settings_from(seed, sweep, rate, weights, thresholds, aliases, walk, known, starts.size() - 1);
        settings.first_user = first_user;
        if (tilt != nullptr) {
          require(tilt->users + 1 == static_cast<std::int64_t>(starts.size()), "the tilt is of other users");
          require(tilt->items == static_cast<std::int64_t>(weights.size()), "the tilt is of other items");
          settings.tilt = &tilt->raw;
        }
        require(first >= 0 && first <= last && last < static_cast<std::int64_t>(starts.size()), "rows out of range");
        require(out_starts.size() == starts.size(), "out_starts is of another length");
        require(static_cast<std::int64_t>(out.size()) >= out_starts.data()[last], "out is too short");
        nb::gil_scoped_release release;
        Drawer drawer(settings);
        for (std::int64_t user = first; user < last; ++user) {
          const std::int64_t begin = starts.data()[user], end = starts.data()[user + 1], at = out_starts.data()[user];
          if (user + 1 < last) drawer.expect(liked.data() + end, starts.data()[user + 2] - end);
          drawer.draw(user, liked.data() + begin, end - begin, out_starts.data()[user + 1] - at, out.data() + at);
        }
        return std::make_tuple(drawer.rejected(), drawer.from_tree(), drawer.from_pi());
      },
      nb::arg("seed"), nb::arg("sweep"), nb::arg("rate"), nb::arg("weights"), nb::arg("thresholds"), nb::arg("aliases"),
      nb::arg("starts"), nb::arg("liked"), nb::arg("first"), nb::arg("last"), nb::arg("out_starts"),
      nb::arg("out").noconvert(), nb::arg("first_user") = 0, nb::arg("walk").none() = nb::none(),
      nb::arg("tilt").none() = nb::none(), nb::arg("known").none() = nb::none(),
      "Draw them, without replacement and never a liked one, from pi or by a walk, tilted or not; those known to be "
      "considered come first, and nothing that is impossible is drawn: (rejections, draws that needed a tree, draws of "
      "a walk that fell back to pi).");
  m.def(
      "solve_temperatures",
      [](In<double> table, double grid_start, double grid_step, In<double> weights, In<std::int64_t> starts,
         In<std::int32_t> liked, std::int64_t first, std::int64_t last, double negatives, InOut<double> out,
         Doubles wanted) {
        require(first >= 0 && first <= last && last < static_cast<std::int64_t>(starts.size()), "rows out of range");
        require(static_cast<std::int64_t>(out.size()) >= last, "out is too short");
        require(table.size() >= 4 && table.size() % 2 == 0, "table");
        require(!wanted || wanted->size() + 1 == starts.size(), "wanted");
        require(starts.data()[first] >= 0 && starts.data()[last] <= static_cast<std::int64_t>(liked.size()), "starts");
        for (std::int64_t e = starts.data()[first]; e < starts.data()[last]; ++e)
          require(liked.data()[e] >= 0 && liked.data()[e] < static_cast<std::int64_t>(weights.size()),
                  "an item is out of range");
        const SaturationTable of{table.data(), static_cast<std::int64_t>(table.size() / 2), grid_start, grid_step};
        nb::gil_scoped_release release;
        double total = 0;
        std::int64_t support = 0;
        for (std::size_t n = 0; n < weights.size(); ++n) {
          total += weights.data()[n];
          support += weights.data()[n] > 0;
        }
        for (std::int64_t user = first; user < last; ++user) {
          const std::int64_t begin = starts.data()[user];
          const std::int64_t degree = starts.data()[user + 1] - begin;
          const double target = wanted ? wanted->data()[user] : negatives * static_cast<double>(degree);
          out.data()[user] =
              solve_temperature(of, weights.data(), total, support, liked.data() + begin, degree, target);
        }
      },
      nb::arg("table"), nb::arg("grid_start"), nb::arg("grid_step"), nb::arg("weights"), nb::arg("starts"),
      nb::arg("liked"), nb::arg("first"), nb::arg("last"), nb::arg("negatives"), nb::arg("out").noconvert(),
      nb::arg("wanted") = nb::none(),
      "T of users first..last, such that 1 - exp(-T weight) over what they have not liked adds up to negatives x "
      "degree, or to what is wanted; `liked` is then all that they do not draw.");
}

}  // namespace considerate
