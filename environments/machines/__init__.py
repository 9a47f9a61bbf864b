"""Nodes on machines of their own, containers or hosts over ssh, each with an agent."""
