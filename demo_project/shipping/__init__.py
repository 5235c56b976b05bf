"""A shop that ships: a warehouse with few pickers, a courier with a quota, a report a day, a book that keeps its order."""
