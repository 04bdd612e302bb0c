"""What eqsat takes beside its peers: workloads, peers, the method, and its results.

The rooms, each of which imports only those before it: ``workloads`` (what is measured),
``peers`` (who computes it), ``reports`` (result files as tables and pictures),
``processes`` (workers and the machine's limits), ``runner`` (the method of ``bench
run``), then ``devices``, ``mathematics``, ``extraction``, ``compiling`` and
``standards``, one for each other kind of measurement. Read ``runner/measure.py`` first.
``results`` holds what was measured, as JSON.
"""
