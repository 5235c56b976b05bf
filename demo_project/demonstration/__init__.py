"""What `manage.py demo` shows: nine claims of `reactor_coord`, each proven on real processes or reported as broken.

`show` puts the parts in order, a module each has the part; `services` starts what they need and ends it; `stage` is what a
part is given: accounts, the journal, the screen.
"""
