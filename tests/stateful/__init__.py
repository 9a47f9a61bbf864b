"""State machines that drive parts of the broker beside small models of them (a package: its
modules share names with other tests).
"""
