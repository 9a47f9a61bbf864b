from broker.core.addresses import AddressBook, AddressSettings


def test_the_most_specific_match_wins_in_any_order():
    tables = [
        AddressSettings(match="#", max_delivery_attempts=1),
        AddressSettings(match="orders.#", max_delivery_attempts=2),
        AddressSettings(match="orders.*", max_delivery_attempts=3),
        AddressSettings(match="orders.eu", max_delivery_attempts=4, dead_letter_address="dead.eu"),
    ]
    for order in (tables, tables[::-1]):
        book = AddressBook(order)
        names = ["other", "orders", "orders.us", "orders.us.x", "orders.eu"]
        assert [book.settings(name).max_delivery_attempts for name in names] == [1, 2, 3, 2, 4]
        assert book.is_dead_letter("dead.eu")
        assert book.is_dead_letter("DLQ")
        assert not book.is_dead_letter("orders.eu")


def test_without_settings_the_defaults_of_the_documents_hold():
    settings = AddressBook().settings("anything")
    assert (settings.max_delivery_attempts, settings.dead_letter_address) == (10, "DLQ")
