namespace considerate {}
