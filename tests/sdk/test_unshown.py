"""A value that holds a secret is never written with it."""

from shipper.sdk.unshown import Unshown


class Login(Unshown, frozen=True):
    password: str


def test_its_text_is_the_name_of_its_type_wherever_it_is_written():
    login = Login("hunter2")

    assert [str(login), repr([login]), f"{login}"] == ["Login(…)", "[Login(…)]", "Login(…)"]
    assert login == Login("hunter2") != Login("other")
