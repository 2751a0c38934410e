"""Users' tests of their operators, without servers; public as `levelog.testing`.

Empty, since pytest loads the plugin beside it at each start, whatever is tested.
"""
