"""Sources: the foreign files and tables that ``dd ingest`` reads, one file for each kind, behind one small protocol.

:class:`~ddcore.io.sources.source.Source` is the protocol: the columns of a source, its rows in frames for this process,
and a frame of Spark where Spark reads it better. :func:`~ddcore.io.sources.finding.find_sources` finds the sources that
the user's paths name; a new kind of file is a line there. :mod:`ddcore.io.sources.row_checks` checks the rows, on Spark
as well.
"""
