"""Results that are tables: of Arrow, and of pandas or polars if these are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from considerate.errors import UsageError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class TableResult:
    """A result with an Arrow table; `pyarrow.table(result)` and `polars.DataFrame(result)` read it, too."""

    def to_arrow(self) -> pyarrow.Table:
        """The result as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """The result as a data frame of pandas (`pip install considerate[pandas]`)."""
        try:
            import pandas as _  # noqa: F401
        except ImportError as error:
            raise _missing("pandas") from error
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The result as a data frame of polars (`pip install considerate[polars]`)."""
        try:
            import polars
        except ImportError as error:
            raise _missing("polars") from error
        return polars.DataFrame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def _missing(package: str) -> UsageError:
    return UsageError(f"to_{package} needs {package}; install it: pip install 'considerate[{package}]'.")
