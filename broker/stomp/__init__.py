"""The STOMP server: acceptor, connections and sessions."""
